"""Graph networks: who treats similar people alike, at what cost, in which group.

Not in the paper. The set-up is GUIDE's: people on a graph, some labels, similarity by
shared neighbours, and one layer of a network.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torchmetrics.functional.classification import binary_auroc, binary_f1_score

import experiments._paper as paper
import experiments._plots as plots
from experiments._gnn import (
    NETWORKS,
    GraphRecipe,
    OneLayer,
    energy,
    gathered,
    near_first,
)
from experiments._graph_report import (
    ALIKE,
    BALANCED,
    GUIDE,
    MATCHED,
    PUBLISHED,
    QUALITY,
    REDRESS,
    VANILLA,
    report_graphs,
)
from experiments.baselines import (
    GroupEqualityLoss,
    RankingLoss,
    guide_head,
    inform_debias,
    inform_debias_graph,
    pairwise_fair_features,
)
from experiments.datasets import SensitiveGraph
from experiments.experiment import Comparison, Experiment, Method
from experiments.records import (
    UNMATCHED,
    Record,
    Run,
    summarize,
    summarize_chosen,
)
from experiments.report import Report
from pyg_glif._utils.adjacency import to_adjacency
from pyg_glif._utils.validation import check_choice
from pyg_glif.functional import glif_smooth
from pyg_glif.graph import structural_similarity
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.methods import smooth_balanced
from pyg_glif.metrics import (
    group_disparity,
    group_gap,
    laplacian_energy,
    ranking_ndcg,
)
from pyg_glif.solvers import CG

#: Log-odds of everybody at each setting of a method.
Found = Iterable[tuple[dict[str, float], Tensor]]


@dataclass(frozen=True)
class GraphConfig:
    """Settings of an experiment on a graph.

    Args:
        dataset (str): Which graph, see :class:`~experiments.datasets.SensitiveGraph`.
        variant (str): Which network.
        recipe (GraphRecipe): How it is trained.
        most_similar (int, optional): Similar people of each who are kept; all who
            share a neighbour if not given.
        lams (tuple of float): Strengths of GLIF.
        alphas (tuple of float): Weights of InFoRM's penalty.
        alphas_graph (tuple of float): Those for its debiasing of the graph.
        ranking (tuple of float): Weights of REDRESS's loss.
        gammas (tuple of float): How much similarity counts in PFR.
        guide (tuple of tuple): Weights of GUIDE's two terms. (default: the published
            ones of ``"credit"``)
        guide_steps (int): Steps of its training.
        layer_lams (tuple of float): Strengths of GLIF as a layer in training.
        num_layer_steps (int): Steps of training through it.
        num_rounds (int): How often InFoRM trains the network and changes the graph.
        num_ranked (int): People whom a step of REDRESS ranks.
        max_loss (float): AUC on validation people that may be lost.
    """

    dataset: str = "credit"
    variant: str = "gcn"
    recipe: GraphRecipe = field(default_factory=GraphRecipe)
    most_similar: int | None = None
    lams: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    alphas: tuple[float, ...] = (5e-7, 5e-6, 5e-5)
    alphas_graph: tuple[float, ...] = (1.0,)
    ranking: tuple[float, ...] = (0.1, 1.0)
    gammas: tuple[float, ...] = (0.5, 0.9)
    guide: tuple[tuple[float, float], ...] = ((5e-6, 1.0),)
    guide_steps: int = 600
    layer_lams: tuple[float, ...] = (0.1, 1.0)
    num_layer_steps: int = 30
    num_rounds: int = 5
    num_ranked: int = 256
    max_loss: float = 0.01


class GraphTrial(Comparison):
    """One split of a graph, and every method on one network.

    Args:
        config (GraphConfig): Settings.
        seed (int): Of the split, the network and the samples.
        progress (bool, optional): Whether to show progress bars.
    """

    def __init__(
        self, config: GraphConfig, seed: int, progress: bool | None = None
    ) -> None:
        self.config, self.seed, self.progress = config, seed, progress
        dataset = SensitiveGraph(name=config.dataset)
        data, masks = dataset[0], dataset.split(seed)
        index, value = structural_similarity(
            data.edge_index, data.num_nodes, k=config.most_similar, progress=progress
        )
        # Similar people next to each other: a third less time for every product.
        order, place = near_first(index, data.num_nodes)
        self.data = Data(
            x=data.x[order],
            y=data.y[order],
            group=data.group[order],
            edge_index=place[data.edge_index],
        )
        self.masks = {part: mask[order] for part, mask in masks.items()}
        self.lap = LaplacianOperator(place[index], value, data.num_nodes)
        self.links, _, _ = to_adjacency(self.data.edge_index, None, self.data.num_nodes)
        self.sums = gathered(config.variant, self.data.x, self.links)
        # For measures between groups and rankings: people who are judged.
        self.judged = self.masks["test"].nonzero()[:, 0]
        # AUC and accuracy on validation people that a setting must reach.
        self.floor = self.floor_accuracy = -math.inf
        self.model: OneLayer | None = None
        self.plain = torch.empty(0)
        # What was measured of GUIDE, and of balanced GLIF by strength.
        self.guided: Mapping[str, float] = {}
        self.tried: dict[float, Mapping[str, float]] = {}

    def methods(self) -> Mapping[str, Method]:
        """The network as it is, then what is done about it."""
        published = paper.GRAPHS.get((self.config.dataset, self.config.variant), {})
        methods: dict[str, Method] = {
            VANILLA: self.vanilla,
            "PFR": self.pfr,
            "InFoRM, graph": self.inform_graph,
            "InFoRM, model": self.inform_model,
            "InFoRM, result": self.inform_result,
            REDRESS: self.redress,
            GUIDE: self.guide,
            "GLIF": self.glif,
            BALANCED: self.balanced,
            MATCHED: lambda: self.at_unfairness(MATCHED, self.guided["unfairness"]),
            PUBLISHED: lambda: self.at_unfairness(PUBLISHED, published[GUIDE][1]),
            ALIKE: self.alike,
            "GLIFConv in training": self.layer,
        }
        if GUIDE not in published:
            del methods[PUBLISHED]
        if self.config.variant == "mlp":
            del methods["InFoRM, graph"]  # the network has none
        return methods

    def extras(self) -> dict[str, Any]:
        """Sizes of the graph and of what says who is similar."""
        return {
            "num_people": self.data.num_nodes,
            "num_train": int(self.masks["train"].sum()),
            "num_judged": len(self.judged),
            "num_similar": self.lap.num_edges // 2,
        }

    def auc(self, logits: Tensor, part: str) -> float:
        """AUC on some people."""
        rows = self.masks[part]
        return float(binary_auroc(logits[rows].double(), self.data.y[rows]))

    def accuracy(self, logits: Tensor, part: str) -> float:
        """Share of some people who are told right."""
        rows = self.masks[part]
        return float(((logits[rows] > 0) == self.data.y[rows]).double().mean())

    def ndcg(self, logits: Tensor, part: str) -> float:
        """Whether those nearest by output are nearest by features, among some."""
        rows = self.masks[part]
        outputs, x = logits[rows].double(), self.data.x[rows]
        return float(ranking_ndcg(outputs, x, progress=self.progress))

    def unfairness(self, f: Tensor) -> dict[str, float]:
        """Unfairness on the whole, as it is and at unit variance."""
        found = laplacian_energy(f, self.lap)
        # As laplacian_energy(..., unit_variance=True) has it.
        unit = found / f.var(correction=0)
        return {"unfairness": float(found), "unfairness_unit": float(unit)}

    def measure(self, logits: Tensor) -> dict[str, float]:
        """What tables show of the log-odds of everybody, rankings excepted."""
        rows, group = self.judged, self.data.group
        y, yes = self.data.y[rows], (logits[rows] > 0).double()
        f = logits.double()
        return {
            "auc": self.auc(logits, "test"),
            "auc_val": self.auc(logits, "val"),
            "auc_decisions": float(binary_auroc(yes, y)),
            "accuracy": self.accuracy(logits, "test"),
            "accuracy_val": self.accuracy(logits, "val"),
            "f1": float(binary_f1_score(yes, y)),
            **self.unfairness(f),
            "disparity": float(group_disparity(f, self.lap, group, definition="guide")),
            "disparity_members": float(group_disparity(f, self.lap, group)),
            "parity_gap": float(group_gap(yes, group[rows])),
            "opportunity_gap": float(group_gap(yes[y == 1], group[rows][y == 1])),
        }

    def records(
        self,
        method: str,
        found: Found,
        by: Callable[[Tensor], float] | None = None,
        status: str = "CONVERGED",
    ) -> list[Record]:
        """All settings of a method; the fairest that costs little enough is chosen.

        That is the one with the least unfairness at unit variance, or the least of
        ``by``, among those whose AUC and accuracy on validation people are at most
        ``max_loss`` below the network's, or else the one with the largest AUC there.
        Rankings take longer than all else and are looked at where they are shown.
        """
        tried = list(found)
        metrics = [self.measure(logits) for _, logits in tried]
        good = [
            i
            for i, m in enumerate(metrics)
            if m["auc_val"] >= self.floor and m["accuracy_val"] >= self.floor_accuracy
        ]

        def unfairness(i: int) -> float:
            return metrics[i]["unfairness_unit"] if by is None else by(tried[i][1])

        if good:
            best = min(good, key=unfairness)
        else:
            best = max(range(len(tried)), key=lambda i: metrics[i]["auc_val"])
        out = []
        for i, (setting, logits) in enumerate(tried):
            ndcg = self.ndcg(logits, "test") if i == best else math.nan
            measured = {**metrics[i], "ndcg": ndcg}
            out.append(Record(method, setting, measured, status, chosen=i == best))
        return out

    def train(
        self,
        sums: Tensor | None = None,
        term: Callable[[Tensor], Tensor] | None = None,
        after: Callable[[Tensor], Tensor] | None = None,
        model: OneLayer | None = None,
        num_steps: int | None = None,
    ) -> tuple[OneLayer, Tensor]:
        """A trained network, and its log-odds.

        Args:
            sums (Tensor, optional): In place of what it gathers of the features.
            term (callable, optional): A term of the loss.
            after (callable, optional): What comes behind the network.
            model (OneLayer, optional): Where to start, and what is changed.
            num_steps (int, optional): In place of that of the recipe.
        """
        seen = self.sums if sums is None else sums
        recipe, kind = self.config.recipe, self.config.variant
        if model is None:
            columns = seen.size(1) // 2 if kind == "sage" else seen.size(1)
            model = recipe.network(kind, columns, self.seed)

        def forward() -> Tensor:
            logits: Tensor = model(seen)
            return logits if after is None else after(logits)

        logits = recipe.fit(model, forward, self.data, self.masks, term, num_steps)
        return model, logits

    def vanilla(self) -> Iterable[Record]:
        """The network, trained for its task alone."""
        self.model, self.plain = self.train()
        self.floor = self.auc(self.plain, "val") - self.config.max_loss
        self.floor_accuracy = self.accuracy(self.plain, "val") - self.config.max_loss
        return self.records(VANILLA, [({}, self.plain)])

    def pfr(self) -> Iterable[Record]:
        """Fair features before training."""

        def each() -> Found:
            x, links = self.data.x, (self.data.edge_index, None)
            for gamma in self.config.gammas:
                fair = pairwise_fair_features(
                    x,
                    links,
                    self.lap,
                    num_components=min(self.config.recipe.hidden, x.size(1)),
                    gamma=gamma,
                )
                sums = gathered(self.config.variant, fair, self.links)
                yield {"gamma": gamma}, self.train(sums)[1]

        return self.records("PFR", each())

    def inform_graph(self) -> Iterable[Record]:
        """InFoRM's debiasing of the graph: the network and its edges in turns."""
        config, links = self.config, self.links
        given = self.data.x.new_ones(links.num_edges)

        def sums(weight: Tensor) -> Tensor:
            both = 0.5 * (weight + weight[links.reverse])
            return gathered(config.variant, self.data.x, links, both)

        def each() -> Found:
            steps = -(-config.recipe.num_steps // config.num_rounds)
            for alpha in config.alphas_graph:
                weight = given
                model = config.recipe.network(
                    config.variant, self.data.num_features, self.seed
                )

                def outputs(weight: Tensor, model: OneLayer = model) -> Tensor:
                    out: Tensor = model(sums(weight))
                    return out

                for _ in range(config.num_rounds):
                    seen = sums(weight).detach()
                    self.train(seen, model=model, num_steps=steps)
                    weight = inform_debias_graph(
                        outputs, given, self.lap, alpha, start=weight
                    )
                yield {"alpha": alpha}, outputs(weight).detach()

        return self.records("InFoRM, graph", each())

    def inform_model(self) -> Iterable[Record]:
        """InFoRM's debiasing of a model: the Laplacian penalty in training."""

        def each() -> Found:
            for alpha in self.config.alphas:

                def term(logits: Tensor, alpha: float = alpha) -> Tensor:
                    return alpha * energy(self.lap, logits)

                yield {"alpha": alpha}, self.train(term=term)[1]

        return self.records("InFoRM, model", each())

    def inform_result(self) -> Iterable[Record]:
        """InFoRM's debiasing of the result: what GLIF does, by another name."""
        found = (
            ({"alpha": alpha}, inform_debias(self.plain.double(), self.lap, alpha))
            for alpha in self.config.lams
        )
        return self.records("InFoRM, result", found)

    def redress(self) -> Iterable[Record]:
        """The ranking loss in training, on some people at each step.

        It is after rankings, so that those of validation people choose its weight.
        """
        generator = torch.Generator().manual_seed(self.seed)
        loss, x = RankingLoss(k=10, sharpness=10.0), self.data.x

        def each() -> Found:
            for weight in self.config.ranking:

                def term(logits: Tensor, weight: float = weight) -> Tensor:
                    rows = torch.randperm(len(x), generator=generator)
                    rows = rows[: self.config.num_ranked]
                    yes = logits[rows].sigmoid()
                    both = torch.stack([1.0 - yes, yes], dim=1)
                    out: Tensor = loss(both, x[rows])
                    return weight * out

                yield {"weight": weight}, self.train(term=term)[1]

        return self.records(REDRESS, each(), by=lambda f: -self.ndcg(f, "val"))

    def guide(self) -> Iterable[Record]:
        """GUIDE: attention over similar people on the network's embedding."""
        assert self.model is not None
        with torch.no_grad():
            embedding = self.model.embed(self.sums)

        def each() -> Found:
            for alpha, beta in self.config.guide:
                loss = GroupEqualityLoss(alpha, beta)
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(self.seed)
                    head = guide_head(embedding.size(1), self.config.recipe.hidden)

                def forward(head: Any = head) -> Tensor:
                    out: Tensor = head(embedding, self.lap, None)[:, 0]
                    return out

                def term(logits: Tensor, loss: Any = loss) -> Tensor:
                    out: Tensor = loss(logits, self.lap, self.data.group)
                    return out

                fit, steps = self.config.recipe.fit, self.config.guide_steps
                logits = fit(head, forward, self.data, self.masks, term, steps)
                yield {"alpha": alpha, "beta": beta}, logits

        found = self.records(GUIDE, each())
        (chosen,) = (record for record in found if record.chosen)
        self.guided = chosen.metrics
        return found

    def smooth(self, lam: float, *, balance: bool = False) -> Tensor:
        """GLIF on the network's log-odds."""
        if not balance:
            return glif_smooth(self.plain.double(), self.lap, lam=lam)
        return smooth_balanced(
            self.plain.double(),
            self.lap,
            groups=self.data.group,
            lam=lam,
            definition="guide",
        ).value

    def glif(self) -> Iterable[Record]:
        """GLIF at all strengths."""
        lams = self.config.lams
        return self.records("GLIF", (({"lam": lam}, self.smooth(lam)) for lam in lams))

    def balanced(self) -> Iterable[Record]:
        """Balanced GLIF at all strengths."""
        found = (
            ({"lam": lam}, self.smooth(lam, balance=True)) for lam in self.config.lams
        )
        records = self.records(BALANCED, found)
        self.tried = {r.setting["lam"]: r.metrics for r in records}
        return records

    def matched(self, measure: str, goal: float) -> tuple[float, Tensor, str]:
        """Strength, log-odds and status of balanced GLIF at a given unfairness.

        Unfairness needs no labels, so the strength is found on all samples, between
        those tried already: the weakest found that is no less fair. The status is
        :data:`UNMATCHED` where even a strength beyond 1e6 is less fair.
        """
        low, high = 0.0, math.inf
        for lam, metrics in self.tried.items():
            if metrics[measure] > goal:
                low = max(low, lam)
            else:
                high = min(high, lam)
        outputs, status = None, "CONVERGED"
        while high == math.inf or (low > 0 and high > 1.02 * low):
            lam = 10.0 * low if high == math.inf else math.sqrt(low * high)
            found = self.smooth(lam, balance=True)
            if self.unfairness(found)[measure] <= goal:
                high, outputs = lam, found
            elif lam > 1e6:
                high, outputs, status = lam, found, UNMATCHED
            else:
                low = lam
        if outputs is None:
            outputs = self.smooth(high, balance=True)
        return high, outputs, status

    def at_unfairness(self, method: str, goal: float) -> Iterable[Record]:
        """Balanced GLIF at an unfairness of others."""
        lam, outputs, status = self.matched("unfairness", goal)
        return self.records(method, [({"lam": lam}, outputs)], status=status)

    def alike(self) -> Iterable[Record]:
        """Balanced GLIF, no less fair than GUIDE by either measure, or unmatched.

        The strength is that at GUIDE's unfairness at unit variance. A factor then takes
        the log-odds to its unfairness as it is, which changes no decision and no AUC.
        """
        lam, outputs, status = self.matched(
            "unfairness_unit", self.guided["unfairness_unit"]
        )
        found = self.unfairness(outputs)["unfairness"]
        factor = min(1.0, math.sqrt(self.guided["unfairness"] / found))
        setting = {"lam": lam, "factor": factor}
        return self.records(ALIKE, [(setting, factor * outputs)], status=status)

    def layer(self) -> Iterable[Record]:
        """Training through GLIF as the last layer, from the network as it is."""

        def each() -> Found:
            for lam in self.config.layer_lams:

                def after(logits: Tensor, lam: float = lam) -> Tensor:
                    return glif_smooth(logits, self.lap, lam=lam, solver=CG(rtol=1e-4))

                start, steps = deepcopy(self.model), self.config.num_layer_steps
                yield (
                    {"lam": lam},
                    self.train(after=after, model=start, num_steps=steps)[1],
                )

        return self.records("GLIFConv in training", each())


class GraphExperiment(Experiment):
    r"""Individual fairness of graph networks, in all and between groups.

    Args:
        config (GraphConfig): Settings; the variant is the network.
    """

    config: GraphConfig

    def __init__(self, config: GraphConfig) -> None:
        super().__init__(config)
        self.name = "german_graph" if config.dataset == "german" else config.dataset

    def configured(self, variant: str | None, limit: float | None) -> "GraphExperiment":
        """The experiment with another network."""
        if variant is not None:
            check_choice("variant", variant, NETWORKS)
        return super().configured(variant, limit)

    def prepare(self, seed: int, progress: bool | None = None) -> GraphTrial:
        """Reads the graph, splits it and looks who is similar."""
        return GraphTrial(self.config, seed, progress)

    def report(self, runs: Sequence[Run]) -> Report:
        """What becomes of individuals, and of scores and groups."""
        return report_graphs(self.name, self.config.dataset, runs)

    def draw(self, runs: Sequence[Run]) -> dict[str, Any]:
        """What AUC buys: likeness on the whole, and balance between groups."""
        chosen = summarize_chosen(runs)
        shown = {"auc": True, "unfairness_unit": False, "disparity": False}
        measures = {m: plots.Measure(m, QUALITY[m], up) for m, up in shown.items()}
        figure, panels = plots.new_figure("abc", height=0.3 * len(chosen) + 1.0)
        plots.rows(panels, chosen, list(measures.values()))
        front, (likeness, balance) = plots.new_figure("ab", height=5.2)
        tried = (row for row in summarize(runs) if row.method in ("GLIF", BALANCED))
        curves = plots.curves_of(tried, "lam")
        shares = [r.mean["unfairness_unit"] for r in chain(chosen, *curves.values())]
        if max(shares) > 10 * min(shares):
            likeness.set_yscale("log")
        for axes, up in ((likeness, "unfairness_unit"), (balance, "disparity")):
            across = measures["auc"]
            plots.trade_off(axes, curves, chosen, across, measures[up], spread=False)
        plots.add_legend(front, [likeness])
        return {"trade_off": figure, "front": front}


CREDIT = GraphExperiment(GraphConfig("credit"))
BAIL = GraphExperiment(GraphConfig("bail", most_similar=100))
# No settings are published for these two: wider grids.
_SMALL = GraphConfig(
    alphas=(5e-7, 5e-6, 5e-5, 5e-4, 5e-3),
    gammas=(0.1, 0.5, 0.9),
    guide=tuple(product((5e-6, 5e-5, 5e-4), (0.01, 0.1, 1.0))),
    guide_steps=300,
)
GERMAN_GRAPH = GraphExperiment(replace(_SMALL, dataset="german"))
NBA = GraphExperiment(replace(_SMALL, dataset="nba"))
