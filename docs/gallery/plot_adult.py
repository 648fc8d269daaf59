"""
Adult: the same person with the other sex
=========================================

Boosted trees predict who earns more than 50,000 dollars a year. Would the same person
get the same answer as a woman and as a man? We ask the model about every newcomer
twice, before and after the correction.
"""

import matplotlib.pyplot as plt
from sklearn.ensemble import HistGradientBoostingClassifier

from pyg_glif.datasets import Adult
from pyg_glif.sklearn import GLIFClassifier

# %%
# People
# ------
# The census of 1994 if its file is there, and people made up by the package if not.

try:
    adult = Adult()
    print("People of the census of 1994.")
except FileNotFoundError:
    adult = Adult(variant="invented")
    print("Nobody in these data exists. They have the columns of the census.")

people = adult.frame.drop(columns="fnlwgt")  # a weight of the census, no feature
known = people[adult.split == "train"].sample(2000, random_state=0)
new = people[adult.split == "test"].sample(1000, random_state=0)
known.head(3)

# %%
# The model, and its correction
# -----------------------------
# ``sensitive`` columns do not count for who is comparable, and *husband* and *wife* are
# two words for one thing. The rest is found by the estimator: how much each column
# matters, how near is comparable, and how strong the correction may be at a small loss
# of accuracy.

model = GLIFClassifier(
    HistGradientBoostingClassifier(max_iter=50, random_state=0),
    sensitive=["sex", "race"],
    equivalent={"relationship": [("Husband", "Wife")]},
    random_state=0,
)
model.fit(known, adult.target[known.index])
post = model.post_
print(f"radius {post.tau_:.2f} {model.table_.unit_}, strength {post.lam:.3g}")

# %%
# Twice the same person
# ---------------------
# ``Adult.twins`` gives everybody the other sex. On the diagonal nothing changes. A
# point in one of the shaded corners is a person whose answer depends on their sex.

(twins,) = adult.twins(new)
truth = adult.target[new.index]
figure, panels = plt.subplots(1, 2, figsize=(9, 4.4), sharey=True, layout="constrained")
for axes, name, scorer in zip(
    panels, ("the model", "with GLIF"), (model.estimator_, model), strict=True
):
    score, twin = (scorer.predict_proba(x)[:, 1] for x in (new, twins))
    same = ((score > 0.5) == (twin > 0.5)).mean()
    right = ((score > 0.5) == truth).mean()
    for corner in ((0, 0.5), (0.5, 0)):
        axes.add_patch(plt.Rectangle(corner, 0.5, 0.5, color="#D55E00", alpha=0.12))
    axes.scatter(score, twin, s=9, alpha=0.5, color="#0072B2")
    axes.plot([0, 1], [0, 1], color="black", linewidth=0.8)
    axes.set_title(f"{name}: same answer for {same:.1%}\naccuracy {right:.3f}")
    axes.set(xlabel="score", xlim=(0, 1), ylim=(0, 1), aspect="equal")
panels[0].set_ylabel("score with the other sex")
figure.show()

# %%
# What next
# ---------
# :doc:`/tables` explains each step, :doc:`/which_baseline` says when dropping the
# columns is the better answer, and :doc:`/experiments` has all of the census and other
# methods.
