"""Trees grown for several requests at once equal those grown alone, one node at a time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slipstream.speculation.drafter import Draft
from slipstream.speculation.eagle3.candidates import Candidates
from slipstream.speculation.tree import TreeShape

Path = tuple[int, ...]

shapes = st.builds(
    TreeShape,
    num_steps=st.integers(1, 5),
    topk=st.integers(1, 4),
    num_draft_tokens=st.integers(2, 20),
    least_score=st.sampled_from([-np.inf, -4.0, -2.0, -1.0]),
)


def children(path: Path, count: int) -> list[tuple[int, float]]:
    """Tokens and log probabilities after a path, best first; the same for the same path."""
    generator = np.random.default_rng([len(path), *path])
    weights = np.sort(generator.random(6))[::-1]
    logprobs = np.log(weights / weights.sum()).astype(np.float32)
    tokens = generator.choice(1000, 6, replace=False)
    return [(int(tokens[i]), float(logprobs[i])) for i in range(min(count, 6))]


def grown_alone(root: int, shape: TreeShape) -> dict[Path, float]:
    """The tree as its paths with their scores, grown as EAGLE-2 says."""
    level: dict[Path, float] = {(root,): 0.0}
    everything: dict[Path, float] = {}
    for _ in range(shape.num_steps):
        best = sorted(level, key=lambda path: -level[path])[: shape.topk]
        best = [path for path in best if level[path] >= shape.least_score]
        level = {
            (*path, token): np.float32(level[path]) + np.float32(logprob)
            for path in best
            for token, logprob in children(path, shape.topk)
        }
        everything |= level
    best = sorted(everything, key=lambda path: -everything[path])[: shape.num_draft_tokens - 1]
    return {path: everything[path] for path in best}


def candidates_for(shapes: list[TreeShape]) -> Candidates:
    facts = [(shape.num_steps, shape.topk, shape.num_draft_tokens - 1) for shape in shapes]
    least = np.array([shape.least_score for shape in shapes], dtype=np.float32)
    return Candidates(*np.array(facts, dtype=np.int32).T, least)


def grown_together(roots: list[int], shapes: list[TreeShape]) -> list[Draft]:
    candidates = candidates_for(shapes)
    widest = candidates.widest

    def propose(paths: list[list[Path | None]], parents: np.ndarray) -> None:
        tokens = np.full((len(paths), len(paths[0]), widest), -1, dtype=np.int32)
        logprobs = np.full(tokens.shape, -np.inf, dtype=np.float32)
        for request, of_request in enumerate(paths):
            for place, path in enumerate(of_request):
                if path is not None:
                    for i, (token, logprob) in enumerate(children(path, widest)):
                        tokens[request, place, i], logprobs[request, place, i] = token, logprob
        candidates.add_level(tokens, logprobs, parents)

    def path_of(request: int, place: int) -> Path:
        if place < 0:
            return (roots[request],)
        parent = int(candidates.parents[request, place])
        return (*path_of(request, parent), int(candidates.tokens[request, place]))

    propose([[(root,)] for root in roots], np.full((len(roots), 1), -1, dtype=np.int32))
    first = 0
    for depth in range(1, max(shape.num_steps for shape in shapes)):
        nodes, worth = candidates.to_expand(first, depth)
        first = candidates.tokens.shape[1]
        paths = [
            [path_of(r, int(node)) if wanted else None for node, wanted in zip(*row, strict=True)]
            for r, row in enumerate(zip(nodes, worth, strict=True))
        ]
        propose(paths, nodes)
    return [Draft(*tree) for tree in candidates.trees()]


def paths_of(root: int, draft: Draft) -> dict[Path, float]:
    """The tree as its paths with their scores."""
    paths: list[Path] = [(root,)]
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        paths.append((*paths[parent], token))
    return dict(zip(paths[1:], draft.scores, strict=True))


@given(st.lists(st.tuples(st.integers(0, 10_000), shapes), min_size=1, max_size=5))
def test_trees_of_all_shapes_are_those_grown_alone(
    requests: list[tuple[int, TreeShape]],
) -> None:
    roots, wanted = [root for root, _ in requests], [shape for _, shape in requests]
    drafts = grown_together(roots, wanted)
    for root, shape, draft in zip(roots, wanted, drafts, strict=True):
        assert paths_of(root, draft) == grown_alone(root, shape)
        assert all(parent <= node for node, parent in enumerate(draft.parents))


def test_a_node_that_cannot_be_in_the_tree_is_not_expanded() -> None:
    candidates = candidates_for([TreeShape(num_steps=3, topk=2, num_draft_tokens=2)])
    tokens = np.array([[[5, 6]]], dtype=np.int32)
    logprobs = np.log(np.array([[[0.9, 0.1]]], dtype=np.float32))
    candidates.add_level(tokens, logprobs, np.full((1, 1), -1, dtype=np.int32))
    _, worth = candidates.to_expand(0, depth=1)
    assert worth.tolist() == [[True, False]]


def test_places_without_a_token_are_never_drafted() -> None:
    candidates = candidates_for([TreeShape(num_steps=1, topk=4, num_draft_tokens=16)])
    tokens = np.array([[[7, 3, -1, -1]]], dtype=np.int32)
    logprobs = np.array([[[-0.1, -2.5, -np.inf, -np.inf]]], dtype=np.float32)
    candidates.add_level(tokens, logprobs, np.full((1, 1), -1, dtype=np.int32))
    ((drafted, above, scores),) = candidates.trees()
    assert (drafted, above) == ([7, 3], [0, 0])
    assert scores.dtype == np.float32 and scores.tolist() == logprobs[0, 0, :2].tolist()
