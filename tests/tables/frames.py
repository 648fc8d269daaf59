"""Frames with columns of every kind, and models with known effects."""

import numpy as np
import pandas as pd

AGE, HOURS = 0.05, -0.02
JOB = {"clerk": 0.0, "nurse": 0.7, "smith": -0.4, None: 0.3}
SEX = {"f": 0.0, "m": 0.9}


def samples(num_samples: int = 60, seed: int = 0) -> pd.DataFrame:
    """Numbers, a number with holes, text with holes, and a sensitive column."""
    random = np.random.RandomState(seed)
    hours = random.randint(10, 60, num_samples).astype(float)
    hours[::7] = np.nan
    jobs = np.array(["clerk", "nurse", "smith", None], dtype=object)
    return pd.DataFrame(
        {
            "age": random.randint(18, 70, num_samples),
            "hours": hours,
            "job": jobs[random.randint(0, 4, num_samples)],
            "sex": np.array(["f", "m"])[random.randint(0, 2, num_samples)],
        }
    )


def score(df: pd.DataFrame) -> np.ndarray:
    """Log-odds that are a sum over columns; missing hours count 1.5."""
    jobs = [JOB[None if pd.isna(job) else job] for job in df["job"]]
    hours = (HOURS * df["hours"]).fillna(1.5)
    return (
        AGE * df["age"].to_numpy(float)
        + hours.to_numpy(float)
        + np.array(jobs)
        + df["sex"].map(SEX).to_numpy(float)
        - 2.0
    )


def predict(df: pd.DataFrame) -> np.ndarray:
    """Probabilities of that sum."""
    return 1 / (1 + np.exp(-score(df)))
