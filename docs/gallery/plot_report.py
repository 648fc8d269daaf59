"""
A report: before and after
==========================

What was compared, what changed, and for whom: the report that ``audit`` writes. It is a
value that can be read as a page, a table, plain data or pictures.
"""

import torch

from pyg_glif import GLIFPostProcessor
from pyg_glif.audit import Bootstrap

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
    sensitive={"group": ["b" if g else "a" for g in group]},
    bootstrap=Bootstrap(num_samples=200),
)
report

# %%
# In pictures
# -----------

picture = report.plot()

# %%
# As a page
# ---------
# ``report.to_html("report.html")`` writes one file that opens anywhere, with charts,
# tables that can be sorted and the people it is about. ``to_markdown()`` and
# ``to_dict()`` have the same content; :doc:`/deploy` says what each number means.

page = report.to_html()
print(f"{len(page) / 2**20:.1f} MiB, charts and all")
