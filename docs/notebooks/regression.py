# %% [markdown]
# # A medical regression: visits to a doctor
#
# The RAND Health Insurance Experiment asked how often people see a doctor if they pay a part of it. Its 20,190 rows
# come with statsmodels. Each row is a person's year; persons have no names in this copy, so that the unit is a row.
# Data of one's own want `group=`, which protects a person with all of their years.

# %%
import warnings

import numpy as np
import statsmodels.api as sm

import dpvb
from dpvb.data import Binary, Numeric, Schema, Table, Target

warnings.simplefilter("ignore")
raw = sm.datasets.randhie.load_pandas().data
years = raw[["mdvis", "disea", "physlm"]].copy()
years["plan"] = np.where(raw["idp"] == 1, "deductible", "none")
years["health"] = np.where(raw["hlthp"] + raw["hlthf"] > 0, "fair or poor", "good")
years.sample(3, random_state=0)

# %% [markdown]
# What is public about the columns is declared and not looked up: the ranges come from the questionnaire. The number
# of chronic diseases was an index of 0 to about 60, and a limitation is a share. First: who sees a doctor at all?

# %%
schema = Schema(
    (
        Numeric("disea", low=0, high=60),
        Numeric("physlm", low=0, high=1),
        Binary("plan", ("none", "deductible")),
        Binary("health", ("good", "fair or poor")),
    ),
    target=Target("any_visit", classes=("no", "yes")),
)
years["any_visit"] = np.where(years["mdvis"] > 0, "yes", "no")
model = dpvb.LogisticRegression(epsilon=1.0, delta=1e-6).fit(Table(years, schema))
print(model.summary(exp=True))

# %% [markdown]
# Odds ratios, in the columns' own units; the noise is in the intervals. A fit of statsmodels, without privacy, gives:

# %%
features = sm.add_constant(
    np.column_stack(
        [years["disea"], years["physlm"], years["plan"] == "deductible", years["health"] == "fair or poor"]
    ).astype(float)
)
open_fit = sm.Logit((years["mdvis"] > 0).to_numpy(float), features).fit(disp=0)
dict(zip(["intercept", "disea", "physlm", "plan", "health"], np.exp(open_fit.params).round(3), strict=True))

# %%
table = model.coefficients()
table.forest()

# %% [markdown]
# Any other question about the coefficients is free: it is asked of what was released.

# %%
print(model.contrast({"disea": 10}, exp=True))
print(model.contrast({"plan": 1, "health": 1}, exp=True))

# %% [markdown]
# Counts take more of a budget: one row may go twenty times, and the noise must cover that. At ε = 4, with 20 visits
# for the most that a year counts:

# %%
counts = Schema(schema.columns, target=Target("mdvis", "negative_binomial", max_count=20))
rates = dpvb.NegativeBinomialRegression(max_count=20, epsilon=4.0, delta=1e-6).fit(Table(years, counts))
print(rates.summary(exp=True))
