"""Samples as files, for the tests of blocks on disk."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def embedding_like(num, width, seed=0):
    """Clusters, a decaying spectrum, near-duplicates: boxes rule much out."""
    random = np.random.default_rng(seed)
    spectrum = np.arange(1, width + 1) ** -0.75
    centres = 2.0 * random.normal(size=(12, width)) * spectrum
    half = (num + 1) // 2
    rows = random.normal(size=(half, width)) * spectrum
    rows += centres[random.integers(0, 12, half)]
    twins = rows + 0.1 * random.normal(size=(half, width)) * spectrum
    both = np.concatenate([rows, twins])[:num]
    return both[random.permutation(num)].astype(np.float32)


def isotropic(num, width, seed=0):
    """Nothing to rule out."""
    return np.random.default_rng(seed).normal(size=(num, width)).astype(np.float32)


def duplicates(num, width, seed=0):
    """Half of all samples at one place."""
    rows = embedding_like(num, width, seed)
    rows[num // 3 : num // 3 + num // 2] = rows[0]
    return rows


CLOUDS = {
    "embedding-like": embedding_like,
    "isotropic": isotropic,
    "duplicates": duplicates,
}


def degree_radius(x, degree):
    """A radius at which samples have about so many neighbors."""
    x = x.astype(np.float64)
    some, norm = x[:: max(1, len(x) // 100)], (x**2).sum(1)
    sq = (some**2).sum(1)[:, None] + norm - 2.0 * some @ x.T
    return float(np.sqrt(np.sort(sq.ravel())[len(some) * (degree + 1)]))


def write_rows(folder, x, ids, *, files=3, group=None, batch=None):
    """Parquet files ``rows-*.parquet`` with a column of lists."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(np.array_split(np.arange(len(x)), files)):
        values = pa.array(x[part].ravel())
        columns = {
            "id": pa.array(ids[part]),
            "emb": pa.FixedSizeListArray.from_arrays(values, x.shape[1]),
        }
        if batch is not None:
            columns["graph"] = pa.array(batch[part])
        path = folder / f"rows-{number:02d}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=group or len(part))
    return str(folder / "rows-*.parquet")


def write_scores(path, y, ids):
    """One Parquet file of outputs."""
    columns = {f"score_{j}": pa.array(y[:, j]) for j in range(y.shape[1])}
    pq.write_table(pa.table({"id": pa.array(ids), **columns}), path)
    return str(path)
