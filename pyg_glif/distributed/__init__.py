"""Exact graphs and certified solves of more samples than a machine holds."""

from pyg_glif.distributed._inputs import FileColumns
from pyg_glif.distributed.engine import Engine, InProcess
from pyg_glif.distributed.graph import ShardedGraph, radius_graph
from pyg_glif.distributed.index import ShardedIndex
from pyg_glif.distributed.planning import Plan, plan
from pyg_glif.distributed.ray_engine import RayEngine
from pyg_glif.distributed.sharded_dataset import ShardedDataset
from pyg_glif.distributed.smoothing import ShardedSolution, smooth

__all__ = [
    "Engine",
    "FileColumns",
    "InProcess",
    "Plan",
    "RayEngine",
    "ShardedDataset",
    "ShardedGraph",
    "ShardedIndex",
    "ShardedSolution",
    "plan",
    "radius_graph",
    "smooth",
]
