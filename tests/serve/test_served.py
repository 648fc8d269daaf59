import hashlib
import os
from pathlib import Path

import pytest

from pyg_glif import GLIFPostProcessor
from pyg_glif.serve._loaded_fit import LoadedFit
from tests.serve.samples import LAM, Numbers


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("times", [1, 3, 99])
def test_a_fit_and_its_name_are_of_one_file(
    fit: Path,
    known: Numbers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    times: int,
) -> None:
    """Also where the file is replaced while it is read."""
    path, load, calls = tmp_path / "fit", GLIFPostProcessor.load, []
    path.write_bytes(fit.read_bytes())

    def replaced(*words: object, **options: object) -> GLIFPostProcessor:
        calls.append(1)
        found = None if moment == "before" else load(*words, **options)  # type: ignore
        if len(calls) <= times:
            known.save(tmp_path / "new", lam=LAM + len(calls))
            os.replace(tmp_path / "new", path)
        return load(*words, **options) if found is None else found  # type: ignore

    monkeypatch.setattr(GLIFPostProcessor, "load", replaced)
    if times == 99:
        with pytest.raises(OSError, match="must stay the same while it is read"):
            LoadedFit(path)
        return
    served = LoadedFit(path)
    assert served.post.lam == LAM + times
    assert hashlib.sha256(path.read_bytes()).hexdigest().startswith(served.fit_id)
