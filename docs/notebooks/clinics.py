# %% [markdown]
# # Clinics that keep their rows
#
# Five clinics ask together who sees a doctor at all. The rows are those of the RAND Health Insurance Experiment,
# which come with statsmodels, dealt to five owners of different size. With secure aggregation the server sees nothing
# but sums over all.

# %%
import warnings

import numpy as np
import statsmodels.api as sm

import dpvb
from dpvb import federated

warnings.simplefilter("ignore")
raw = sm.datasets.randhie.load_pandas().data
X = raw[["disea", "physlm", "idp", "hlthf"]].to_numpy(float)
y = (raw["mdvis"] > 0).to_numpy(int)
place = np.random.default_rng(0).permutation(len(y))
clinics = [(X[rows], y[rows]) for rows in np.split(place, [1_000, 3_000, 6_000, 12_000])]
[len(rows) for _, rows in clinics]

# %% [markdown]
# The ranges of the columns are public, and the same for all.

# %%
given = {"epsilon": 1.0, "delta": 1e-6, "low": [0, 0, 0, 0], "high": [60, 1, 1, 1]}
together = {}
for trust in ("secure_aggregation", "none"):
    together[trust] = dpvb.LogisticRegression(**given)
    federated.simulate(together[trust], clinics, trust=trust, num_rounds=20)
together["one owner of all rows"] = dpvb.LogisticRegression(**given).fit(X, y)
together["the smallest clinic alone"] = dpvb.LogisticRegression(**given).fit(*clinics[0])
for name, model in together.items():
    print(f"{name:26}", np.round(np.ravel(model.coef_), 3), "±", np.round(np.ravel(model.coef_std_), 3))

# %% [markdown]
# Together the clinics know about as much as if their rows lay in one place; alone the smallest one knows little. Each
# has a statement of its own for its patients.

# %%
print(together["secure_aggregation"].client_statements_[0])
