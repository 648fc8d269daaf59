"""
Bios: he, she, and the occupation
=================================

A classifier reads biographies and names the occupation. It should not change its mind
because "he" reads "she". ``swap_gender`` writes the same biography about the other
gender; the fair distance learns from such pairs which differences must not matter.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.linear_model import LogisticRegression

from experiments.counterfactuals import encode, swap_gender
from experiments.datasets import Bios
from pyg_glif import GLIFPostProcessor
from pyg_glif.links import Logit
from pyg_glif.metric_learning import FACE

# %%
# Biographies
# -----------
# A part of *Bias in Bios* if its file is there. If not, sentences are put together from
# parts, with the bias that real ones have: most nurses are women and most surgeons are
# men.

NURSES = [
    "cares for patients",
    "gives vaccinations",
    "comforts parents",
    "checks charts",
]
SURGEONS = [
    "operates on hips",
    "replaces valves",
    "repairs hearts",
    "leads transplants",
]
PLACES = ["in Leeds", "at a large hospital", "in a small town", "on the night shift"]


def put_together():
    """Texts, 1 for surgeons, and the number of the person."""
    texts = []
    for works, usual in ((NURSES, "She"), (SURGEONS, "He")):
        for i, work in enumerate(works):
            for j, place in enumerate(PLACES):
                unusual = "He" if usual == "She" else "She"
                who = unusual if (i + j) % 4 == 0 else usual
                his = "his" if who == "He" else "her"
                texts.append(f"{who} {work} {place} and loves {his} work.")
    return texts, torch.arange(len(texts)) // (len(NURSES) * len(PLACES))


try:
    dataset = Bios(limit=0.1, progress=False)
    data = dataset[0]
    first, second = (dataset.classes.index(name) for name in ("nurse", "surgeon"))
    kept = (data.y == first) | (data.y == second)
    x, y, person = data.x[kept], (data.y[kept] == second).long(), data.group[kept]
    train = data.train_mask[kept]
    written = data.original[kept] & ~train
    distance = FACE(10).fit(dataset.face_x, dataset.face_group)
    print("Biographies of nurses and surgeons from Bias in Bios.")
except FileNotFoundError:
    texts, occupation = put_together()
    x = encode([*texts, *map(swap_gender, texts)], progress=False)
    y, person = occupation.repeat(2), torch.arange(len(texts)).repeat(2)
    written = torch.arange(len(x)) < len(texts)
    train = written & (person % 2 == 0)
    distance = FACE(10).fit(x[person % 2 == 0], person[person % 2 == 0])
    written &= ~train
    print("These biographies are made up.")

# %%
# The model, asked twice
# ----------------------
# The classifier is trained on biographies as they were written, and asked about other
# people: as written, and with the other pronouns and titles.

model = LogisticRegression(C=30).fit(x[train], y[train])
other = torch.stack(
    [
        next(j for j in (person == person[i]).nonzero().flatten() if j != i)
        for i in written.nonzero().flatten()
    ]
)
asked = torch.cat([written.nonzero().flatten(), other])
y_hat = torch.from_numpy(model.predict_proba(x[asked])[:, 1])

# %%
# The correction
# --------------

post = GLIFPostProcessor(distance=distance, lam=10.0, link=Logit(), target_degree=3)
y_fair = post.fit_transform(x[asked], y_hat)

# %%
# Before and after
# ----------------
# A line joins the two answers about one person.

half = len(asked) // 2
order = y_hat[:half].argsort()[:: max(1, half // 30)]
figure, panels = plt.subplots(1, 2, figsize=(9, 5), sharey=True, layout="constrained")
for axes, title, score in zip(
    panels, ("before", "after"), (y_hat, y_fair), strict=True
):
    as_written, swapped = score[:half], score[half:]
    same = ((as_written > 0.5) == (swapped > 0.5)).double().mean()
    rows = range(len(order))
    axes.hlines(rows, as_written[order], swapped[order], color="#999999")
    axes.scatter(as_written[order], rows, color="#0072B2", label="as written")
    axes.scatter(swapped[order], rows, color="#D55E00", marker="D", label="swapped")
    axes.axvline(0.5, color="black", linewidth=0.8)
    axes.set(title=f"{title}: same answer for {same:.1%}", yticks=[])
    axes.set(xlabel="probability of surgeon", xlim=(-0.03, 1.03))
figure.legend(
    *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2
)
figure.show()

# %%
# :doc:`/text` explains texts, counterfactuals and encodings.
