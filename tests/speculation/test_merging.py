"""Two drafts in one tree."""

from hypothesis import given
from hypothesis import strategies as st

from slipstream.speculation.drafter import NO_DRAFT, Draft, Source
from slipstream.speculation.merging import merge

Paths = dict[tuple[int, ...], tuple[float, Source]]


def draft(paths: dict[tuple[int, ...], float], source: Source) -> Draft:
    """The tree of all these paths and their beginnings, shorter ones first."""
    whole = {path[:n] for path in paths for n in range(1, len(path) + 1)}
    ordered = sorted(whole, key=lambda path: (len(path), path))
    number = {(): 0} | {path: node for node, path in enumerate(ordered, start=1)}
    return Draft(
        [path[-1] for path in ordered],
        [number[path[:-1]] for path in ordered],
        [paths.get(path, -0.5) for path in ordered],
        [source] * len(ordered),
    )


def paths_of(draft: Draft) -> Paths:
    paths: list[tuple[int, ...]] = [()]
    for parent, token in zip(draft.parents, draft.tokens, strict=True):
        assert parent < len(paths), "a parent stands before its children"
        paths.append((*paths[parent], token))
    found = dict(zip(paths[1:], zip(draft.scores, draft.origins, strict=True), strict=True))
    assert len(found) == len(draft.tokens), "no path is there twice"
    return found


def test_nothing_merges_with_anything() -> None:
    one = draft({(1, 2): -1.0}, Source.MODEL)
    assert merge(one, NO_DRAFT) is one
    assert merge(NO_DRAFT, one) is one


def test_what_both_have_is_one_node_with_the_better_score() -> None:
    merged = merge(
        draft({(1,): -0.2, (1, 2): -1.0, (3,): -2.0}, Source.MODEL),
        draft({(1,): -0.4, (1, 2): -0.6, (1, 2, 5): -0.7}, Source.LOOKUP),
    )
    assert paths_of(merged) == {
        (1,): (-0.2, Source.BOTH),
        (3,): (-2.0, Source.MODEL),
        (1, 2): (-0.6, Source.BOTH),
        (1, 2, 5): (-0.7, Source.LOOKUP),
    }


SOME_PATHS = st.dictionaries(
    st.lists(st.integers(0, 3), min_size=1, max_size=5).map(tuple),
    st.floats(-5, 0),
    max_size=8,
)


@given(SOME_PATHS, SOME_PATHS)
def test_it_has_the_paths_of_both_and_no_others(
    first: dict[tuple[int, ...], float], second: dict[tuple[int, ...], float]
) -> None:
    one, other = draft(first, Source.MODEL), draft(second, Source.LOOKUP)
    before = (list(one.tokens), list(other.tokens))
    merged = paths_of(merge(one, other))
    assert set(merged) == set(paths_of(one)) | set(paths_of(other))
    assert before == (one.tokens, other.tokens), "the drafts are left as they were"
