"""The algorithms of the papers that dpvb began from, as printed: one file each, run by `dpvb.PrivateModel`.

=========================  ===============================================================================
conjugate_exponential      Algorithms 1 and 2, and a worked Beta-Bernoulli
lda                        Algorithm 3: topics
binomial_likelihoods       Algorithm 4: Pólya-Gamma augmentation
logistic_regression        Algorithm 5
belief_network             Algorithm 6
private_em                 expectation maximisation (Appendix D; Park, Foulds, Chaudhuri & Welling 2016)
dp_sgd                     Algorithm 1 of the thesis draft: gradient descent
partitioned                Algorithm 2 of the thesis draft: partitioned variational inference
=========================  ===============================================================================

`docs/papers.md` says where each is, what differs from the print and why, and which numbers were reproduced.
"""
