"""
Sentiment: names that should sound alike
========================================

A classifier learned from word vectors which words are positive. Asked about first
names, it has opinions that nobody taught it. We make it treat names alike, with data
that come with the package.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from pyg_glif import edge_weights, fair_radius_graph, glif_smooth
from pyg_glif.datasets import Sentiment
from pyg_glif.metric_learning import SensitiveSVD

# %%
# The model
# ---------
# Logistic regression on the vectors of about 5,000 words, judged on other words.

dataset = Sentiment()
data = dataset[0]
train, test, names = data.train_mask, data.test_mask, data.name_mask
model = LogisticRegression(max_iter=1000).fit(data.x[train], data.y[train])
judged = test | names
x, is_name = data.x[judged], names[judged]
y_hat = torch.from_numpy(model.decision_function(x)).float()  # log-odds of "positive"

# %%
# Who is comparable
# -----------------
# Two vectors are comparable if they differ only in what makes common first names
# differ. These directions are learned from other names; nobody's race or gender is
# used.

distance = SensitiveSVD(num_components=50).fit(dataset.side_x)
edge_index, sq_dist = fair_radius_graph(x, tau=8**0.5, distance=distance)
y_fair = glif_smooth(y_hat, edge_index, edge_weights(sq_dist, 1e-4), lam=0.1)

# %%
# Before and after
# ----------------

right = [
    float(((y > 0) == (data.y[judged] == 1))[~is_name].float().mean())
    for y in (y_hat, y_fair)
]
print(f"accuracy on words: {right[0]:.3f} before, {right[1]:.3f} after")
race = data.race[judged][is_name]
words = [dataset.words[row] for row in names.nonzero().flatten().tolist()]
figure, panels = plt.subplots(1, 2, figsize=(9, 5), sharey=True, layout="constrained")
rng = np.random.default_rng(0)
for axes, title, y in zip(panels, ("before", "after"), (y_hat, y_fair), strict=True):
    scores = y[is_name]
    across = race.numpy() + rng.uniform(-0.18, 0.18, len(race))
    for value, colour in ((0, "#0072B2"), (1, "#D55E00")):
        mine = scores[race == value]
        axes.scatter(across[race == value], mine, color=colour, alpha=0.7)
        axes.hlines(mine.mean(), value - 0.3, value + 0.3, color="black", linewidth=2)
    for i in (int(scores.argmin()), int(scores.argmax())):
        place = (float(across[i]), float(scores[i]))
        axes.annotate(words[i].capitalize(), place, (7, -4), textcoords="offset points")
    axes.set(title=f"{title}: standard deviation {float(scores.std()):.2f}")
    axes.set_xticks([0, 1], ["White names", "Black names"])
    axes.set_xlim(-0.5, 1.6)
    axes.grid(alpha=0.3)
panels[0].set_ylabel("log-odds of being a positive word")
figure.show()

# %%
# :doc:`/sentiment` is the tutorial with a network, and :doc:`/experiments` has ten
# seeds of it beside the other methods of the paper.
