"""Models that enter a copy of the running learner, which takes its place if it is better by a test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from streamsvm.features import EncodedRows, Floats, Ints
from streamsvm.models import ArchiveError
from streamsvm.online import from_state
from streamsvm.online.base import OnlineClassifier
from streamsvm.online.budgeted import BSGDClassifier
from streamsvm.online.polytope import CPMClassifier
from streamsvm.refit.evidence import Evidence, Verdict
from streamsvm.refit.renewal import NewFaces, NewVectors, renewed
from streamsvm.refit.solvers import Bcd, Cuts, Given, Newton, Solution, Solver

# The chance that any challenger at all takes the learner's place without being better, and the events after which one
# that is not found better is given up: it learns as the learner does, so that what it knew better has faded by then.
ALPHA, MOST = 0.05, 10_000

ADOPTED, GIVEN_UP, TRIED = "adopted", "given up", "is tried"


class Adoption:
    """The challenger of a running learner, one at a time.

    A solution enters a branch of the learner, which keeps its columns, statistics, class numbers and metric, and learns
    on beside it. Every labelled event is a round: both predict it before they learn it.

    Parameters
    ----------
    solver
        What solves windows; `check` says which go together with a learner.

    Attributes
    ----------
    solver
        The same, for what the learner itself holds.
    """

    def __init__(self, solver: Solver) -> None:
        self.solver: Solver = NewFaces(solver) if _is_linear(solver) else NewVectors(solver)
        self._challenger: OnlineClassifier | None = None
        self._evidence = Evidence(ALPHA, MOST)
        self._n_tried = 0

    @staticmethod
    def check(learner: OnlineClassifier, solver: Solver) -> None:
        """Refuse a learner that cannot go on from what the solver finds.

        Raises
        ------
        ValueError
            Naming the solvers that go together with the learner.
        """
        if isinstance(learner, CPMClassifier):
            fits, fitting = _is_linear(solver), '"newton", "bcd", or a SmoothedNewton or IndexedBCD'
        elif isinstance(learner, BSGDClassifier):
            fits, fitting = _is_gaussian(solver), '"cuts", or a SampledCuts with kernel="gaussian"'
        else:
            raise ValueError(
                f'hand_over="adopt" is for a CPMClassifier or a BSGDClassifier, not for a {type(learner).__name__}: '
                'take hand_over="vote"'
            )
        if not fits:
            raise ValueError(
                f'hand_over="adopt": a {type(learner).__name__} cannot go on from what {solver.name!r} finds; solvers '
                f'that fit are {fitting}; or take hand_over="vote"'
            )

    @property
    def is_running(self) -> bool:
        """Whether there is a challenger."""
        return self._challenger is not None

    def challenge(self, learner: OnlineClassifier, solution: Solution) -> None:
        """Have the solution enter a branch of the learner, which is tried from now on."""
        self._challenger, self._evidence = renewed(learner, solution), Evidence(ALPHA, MOST)
        self._n_tried += 1

    def compete(
        self, learner: OnlineClassifier, rows: EncodedRows, codes: Ints, weights: Floats, predicted: Ints
    ) -> None:
        """Have the challenger predict and learn the rows that the learner has, and note who was right."""
        if self._challenger is None:
            return
        self._challenger._follow(learner)
        found, _, _ = self._challenger._run(rows, codes, weights, score=True)
        judged = codes >= 0
        n_wins = int((judged & (found == codes) & (predicted != codes)).sum())
        n_losses = int((judged & (found != codes) & (predicted == codes)).sum())
        self._evidence.add(n_wins, n_losses, int(judged.sum()) - n_wins - n_losses)

    def winner(self) -> tuple[OnlineClassifier | None, str | None]:
        """Who takes the learner's place, if anybody, and how the trial ended; (None, None) as long as it goes on."""
        challenger = self._challenger
        if challenger is None or (verdict := self._evidence.verdict(self._n_tried)) is Verdict.OPEN:
            return None, None
        self._challenger = None
        return (challenger, ADOPTED) if verdict is Verdict.BETTER else (None, GIVEN_UP)

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """All there is to know, as a JSON header and arrays."""
        challenger, arrays = (None, {}) if self._challenger is None else self._challenger.state()
        return {"n_tried": self._n_tried, "evidence": self._evidence.state(), "challenger": challenger}, arrays

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], learner: OnlineClassifier) -> None:
        """Continue from what `state` gave, beside this learner."""
        n_tried = header["n_tried"]
        if type(n_tried) is not int or n_tried < 0:
            raise ArchiveError(f"{n_tried!r} challengers were tried")
        self._n_tried = n_tried
        self._evidence.restore(header["evidence"])
        if header["challenger"] is None:
            return
        challenger = from_state(header["challenger"], arrays)
        n, names = len(challenger._codes), challenger._space.names
        if (
            type(challenger) is not type(learner)
            or challenger.classes_ != learner.classes_[:n]
            or names != learner._space.names[: len(names)]
        ):
            raise ArchiveError("the challenger is another learner, or knows other columns or classes")
        self._challenger = challenger


def _is_linear(solver: Solver) -> bool:
    from streamsvm.batch import IndexedBCD, SmoothedNewton

    given = isinstance(solver, Given) and isinstance(solver.estimator, (SmoothedNewton, IndexedBCD))
    return given or isinstance(solver, (Newton, Bcd))


def _is_gaussian(solver: Solver) -> bool:
    from streamsvm.batch import SampledCuts

    if isinstance(solver, Given):
        return isinstance(solver.estimator, SampledCuts) and solver.estimator.kernel == "gaussian"
    return isinstance(solver, Cuts)
