"""The draft nodes of one request: what they are worth, and which the target agreed with."""

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.speculation.drafter import Draft, Source
from slipstream.speculation.policy.calibration import Calibration
from slipstream.speculation.tree import TreeShape


@dataclass(slots=True)
class WeighedDraft:
    """A draft, with each node's depth (from 1) and probability that its whole path is accepted.

    ``unskilled`` are those probabilities apart from how well this request has drafted lately.
    """

    draft: Draft
    depths: list[int]
    unskilled: list[float]
    probabilities: list[float]

    @classmethod
    def of(
        cls, draft: Draft, calibration: Calibration, sampled: bool, skill: float
    ) -> "WeighedDraft":
        """Weigh every node; none is likelier than its parent, whatever the calibration says."""
        depths, unskilled, probabilities = [0], [1.0], [1.0]  # the root's
        for parent, score, source in zip(draft.parents, draft.scores, draft.origins, strict=True):
            depth = depths[parent] + 1
            likely = calibration.probability(score, depth, (source, sampled))
            depths.append(depth)
            unskilled.append(likely)
            probabilities.append(min(likely * skill, probabilities[parent]))
        return cls(draft, depths[1:], unskilled[1:], probabilities[1:])

    def keep(self, places: Sequence[int]) -> Draft:
        """The draft with only these nodes, ascending; with a node its parent must be kept."""
        draft = self.draft
        if len(places) == len(draft.tokens):
            return draft
        number = {0: 0} | {place + 1: node for node, place in enumerate(places, start=1)}
        return Draft(
            [draft.tokens[place] for place in places],
            [number[draft.parents[place]] for place in places],
            [draft.scores[place] for place in places],
            [draft.sources[place] for place in places] if draft.sources else [],
        )

    def outcomes(self, emitted: Sequence[int]) -> list[bool | None]:
        """Whether the target agreed with each node's path, given what it emitted.

        None where nobody knows: below a node that was right, but after which nothing was emitted.
        """
        draft = self.draft
        right: list[bool | None] = [True]  # the root
        for parent, token, depth in zip(draft.parents, draft.tokens, self.depths, strict=True):
            above = right[parent]
            if above and depth <= len(emitted):
                right.append(token == emitted[depth - 1])
            else:
                right.append(None if above else above)
        return right[1:]

    def expanded(self, shape: TreeShape) -> list[int]:
        """How many nodes of each level but the last got children, about: those of a model that are
        likely enough and not too many."""
        likely = [0] * max(self.depths, default=0)
        facts = zip(self.depths, self.draft.scores, self.draft.origins, strict=True)
        deepest = 0
        for depth, score, source in facts:
            if source != Source.LOOKUP:
                deepest = max(deepest, depth)
                likely[depth - 1] += score >= shape.least_score
        return [min(nodes, shape.topk) for nodes in likely[: max(deepest - 1, 0)]]

    def by_level(self) -> list[list[float]]:
        """Probabilities of each level's nodes of a model, the best first."""
        levels: list[list[float]] = [[] for _ in range(max(self.depths, default=0))]
        facts = zip(self.depths, self.probabilities, self.draft.origins, strict=True)
        for depth, probability, source in facts:
            if source != Source.LOOKUP:
                levels[depth - 1].append(probability)
        for level in levels:
            level.sort(reverse=True)
        return levels
