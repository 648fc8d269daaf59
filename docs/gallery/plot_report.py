"""
A report: before and after
==========================

What was compared, what changed, and for whom: the report that ``audit`` writes. It is a
value that can be read as a page, a table, plain data or pictures.
"""

import torch

from pyg_glif import GLIFPostProcessor
from pyg_glif.postprocessor import Bootstrap

# %%
# Scores
# ------
# Three hundred applicants, who are made up: two features that matter, and scores of a
# model that lowers those of one group.

generator = torch.Generator().manual_seed(0)
skill = torch.randn(300, 2, generator=generator)
group = (torch.rand(300, generator=generator) < 0.4).long()
noise = 0.5 * torch.randn(300, generator=generator)
score = torch.sigmoid(skill.sum(1) - 1.2 * group + noise)

# %%
# The correction and its report
# -----------------------------

post = GLIFPostProcessor(lam=1.0, target_degree=15).fit(skill, score)
report = post.audit(
    attributes={"group": ["b" if g else "a" for g in group]},
    bootstrap=Bootstrap(num_samples=200),
)
for measure in report.measures:
    print(f"{measure.title:38} {measure.before!s:>26} -> {measure.after!s}")

# %%
# In pictures
# -----------

picture = report.plot()

# %%
# ``report.to_html("report.html")`` writes one page that opens anywhere,
# ``to_markdown()`` and ``to_dict()`` have the same content; :doc:`/deploy` says what
# each number means.
