# %% [markdown]
# # Topics of Wikipedia articles
#
# The package ships word counts of 40,000 Wikipedia articles. Here 15,000 of them are taken for private documents: the
# topics are fitted at ε = 2, and no single article shows in them.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np

import dpvb
from dpvb.sample import load_sample

warnings.simplefilter("ignore")
sample = load_sample()
private = sample.documents[:15_000]
private.shape, sample.held_out.shape

# %% [markdown]
# What may be expected is said before anything is spent. No document is read for that: the number of documents is a
# public guess.

# %%
print(dpvb.plan(dpvb.LDA(10, epsilon=2.0, delta=1e-6, vocabulary=sample.vocabulary), 15_000))

# %%
model = dpvb.LDA(10, epsilon=2.0, delta=1e-6, vocabulary=sample.vocabulary, random_state=0)
model.fit(private)
for words in model.topics(8):
    print(" ".join(words))

# %% [markdown]
# Some of the topics may be no more than noise. How many are more is told by released numbers alone.

# %%
model.topics_above_noise_

# %% [markdown]
# Perplexity is measured on articles that are public. Fitted without noise, the same model shows what privacy costs.

# %%
open_model = dpvb.LDA(10, epsilon=np.inf, delta=1e-6, vocabulary=sample.vocabulary, random_state=0).fit(private)
measured = {
    "ε = 2": model.perplexity(sample.held_out, public=True),
    "no privacy": open_model.perplexity(sample.held_out, public=True),
    "each word alike": float(len(sample.vocabulary)),
}
measured

# %%
plt.figure(figsize=(6, 2))
plt.barh(list(measured), list(measured.values()), color="slategrey")
plt.xlabel("perplexity of public articles; less is better")
plt.tight_layout()
plt.show()

# %% [markdown]
# The statement says what is promised, and what is not.

# %%
print(model.privacy_)
