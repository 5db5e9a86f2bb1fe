"""What stragglers ask of the jobs of a trace: docs/design/005-stragglers.md, section 3."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from envs.spec import SimConfig, SpecError
from traces.sensitivity import sensitivity_of
from traces.trace import Trace

LEAST_BACKED_UP, BACKUP_SHARE = 8, 0.05  # jobs of so many GPUs have this share of backup workers more


def set_sensitivities(table: np.recarray, trace: Trace, config: SimConfig, elastic: npt.NDArray[np.bool_]) -> None:
    """Fill the columns of a job table that stragglers need, and give large rigid jobs their backup workers.

    Raises :class:`SpecError` where stragglers are not simulated.
    """
    if config.stragglers == "none":
        return
    jobs = trace.jobs
    if config.compat == "deepboot":
        raise SpecError("sim.stragglers must be none under compat deepboot, whose rules know none")
    rows = [sensitivity_of(*pair) for pair in zip(jobs["sensitivity"], jobs["model"].where(elastic, ""), strict=True)]
    table["kappa"] = np.array([[row.cpu, row.net, row.io] for row in rows])
    table["speed_class"] = [row.speed_class for row in rows]
    given = jobs["comm_share"].to_numpy(np.float64)
    table["comm"] = np.where(np.isnan(given), [row.comm_share for row in rows], given)
    if config.sync == "backup":
        request = jobs["num_gpus"].to_numpy()
        backup = np.ceil(BACKUP_SHARE * request - 1e-9).astype(np.int64)
        table["backup"] = np.where(~elastic & (request >= LEAST_BACKED_UP), backup, 0)
        table["num_gpus"] += table["backup"]
        table["max_gpus"] += table["backup"]
