# %% [markdown]
# # A table of nobody
#
# Fair (1978) studied a survey of 6,366 married women about their marriages; its rows come with statsmodels. Answers
# of this kind nobody wants to see published. A mixture at ε = 2 gives rows of women who do not exist.

# %%
import warnings

import pandas as pd
import statsmodels.api as sm

import dpvb
from dpvb.data import Categorical, Numeric, Schema, Table

warnings.simplefilter("ignore")
raw = sm.datasets.fair.load_pandas().data
survey = pd.DataFrame(
    {
        "age": raw["age"],
        "years_married": raw["yrs_married"],
        "rating": raw["rate_marriage"].astype(int).astype(str),
        "religious": raw["religious"].astype(int).astype(str),
        "affair": (raw["affairs"] > 0).map({True: "yes", False: "no"}),
    }
)
schema = Schema(
    (
        Numeric("age", low=15, high=50),
        Numeric("years_married", low=0, high=30),
        Categorical("rating", ("1", "2", "3", "4", "5")),
        Categorical("religious", ("1", "2", "3", "4")),
        Categorical("affair", ("no", "yes")),
    )
)
model = dpvb.Mixture(10, epsilon=2.0, delta=1e-5, random_state=0).fit(Table(survey, schema))
print("\n".join(str(model.component_table()).splitlines()[:26]))  # the first group

# %%
synthetic = pd.DataFrame(model.sample(6_000, 0))
synthetic.head()

# %% [markdown]
# Does an analysis of these rows say what one of the private rows would? In real use nobody may ask: the comparison is
# made here since the survey is public.

# %%
both = {"survey": survey, "synthetic": synthetic}
pd.DataFrame(
    {name: rows.groupby("rating")["affair"].apply(lambda a: (a == "yes").mean()) for name, rows in both.items()}
)

# %%
pd.DataFrame(
    {name: rows[["age", "years_married"]].astype(float).corr().iloc[0, 1] for name, rows in both.items()}, index=["r"]
)

# %% [markdown]
# A single table does not include the noise. The spread of twenty tables from drawn groups does. Neither includes the
# error of the mixture, which can be large for regression coefficients, and of which `combine_synthetic` warns.

# %%
tables = [pd.DataFrame(model.sample(20_000, seed, parameters="draw")) for seed in range(20)]
ages = [table["age"].astype(float) for table in tables]
found = dpvb.combine_synthetic([age.mean() for age in ages], [age.var() / len(age) for age in ages])
print(
    f"mean age {found.mean:.2f}, 95 % interval {found.low:.2f} to {found.high:.2f}; "
    f"in the survey {survey['age'].mean():.2f}"
)
