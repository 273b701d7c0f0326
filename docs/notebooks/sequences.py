# %% [markdown]
# # Sequences: which letter follows which
#
# The 10,000 most frequent English words ship with the package. Here every word plays a person, and its letters what
# this person did, one after the other. A Markov chain of order 2 learns at ε = 1 how letters follow each other.

# %%
import string
import warnings

import matplotlib.pyplot as plt
import numpy as np

import dpvb

warnings.simplefilter("ignore")
words = [list(word) for word in dpvb.data.words("english") if word.isascii() and word.isalpha()]
letters = list(string.ascii_lowercase)
chain = dpvb.MarkovChain(letters, order=2, epsilon=1.0, delta=1e-6).fit(words)
print("\n".join(chain.summary().splitlines()[:12]))

# %% [markdown]
# Words of nobody, and what most probably comes after "th":

# %%
print(" ".join("".join(word) for word in chain.sample(12, 1, length=7)))
[after] = chain.predict_next([["t", "h"]])
{letters[place]: round(float(after[place]), 2) for place in np.argsort(after)[::-1][:4]}

# %% [markdown]
# More than one letter of memory pays: held-out words (here public ones of the same list) are more probable, in nats a
# letter.

# %%
order = np.random.default_rng(0).permutation(len(words))
fitted, public = [words[place] for place in order[:9_000]], [words[place] for place in order[9_000:]]
scores = {}
for memory in (1, 2):
    for epsilon in (0.5, 1.0, 4.0, np.inf):
        fit = dpvb.MarkovChain(letters, order=memory, epsilon=epsilon, delta=1e-6).fit(fitted)
        scores[memory, epsilon] = fit.score(public, public=True)
for memory in (1, 2):
    plt.plot(
        ["0.5", "1", "4", "∞"], [scores[memory, e] for e in (0.5, 1.0, 4.0, np.inf)], "o-", label=f"order {memory}"
    )
plt.xlabel("ε")
plt.ylabel("log-likelihood of a letter")
plt.legend()
plt.show()

# %% [markdown]
# Hidden states find vowels and consonants, which nobody has told them of:

# %%
states = dpvb.HiddenMarkovModel(2, symbols=letters, epsilon=1.0, delta=1e-6, random_state=0).fit(words)
for row in states.emission_probabilities_:
    print(" ".join(letters[place] for place in np.argsort(row)[::-1][:9]))
