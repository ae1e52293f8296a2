"""Functions over lists."""

from collections import Counter
from itertools import pairwise
from typing import Any

from slipstream.training.prompts.functions import reference


@reference(
    "second_largest runner_up second_biggest",
    "return the second largest distinct value of a list, or None if there is no such value",
    "find the largest number that is smaller than the maximum; give None if all are equal",
    inputs="[4, 9, 2, 9]; [5, 5]; [1, 2]; [-3, -8, -1, -4]",
)
def second_highest(numbers: list[int]) -> int | None:
    distinct = sorted(set(numbers))
    return distinct[-2] if len(distinct) > 1 else None


@reference(
    "rotate shift_left rotate_list",
    "move the first k elements of a list to its end; k may exceed the length of the list",
    "rotate a list k places to the left and return the result as a new list",
    inputs="[1, 2, 3, 4, 5], 2; ['a', 'b', 'c'], 4; [], 3; [7, 8], 0",
)
def rotate_left(items: list[Any], k: int) -> list[Any]:
    if not items:
        return []
    k %= len(items)
    return items[k:] + items[:k]


@reference(
    "split_into_chunks batched chunk_list",
    "split a list into consecutive pieces of the given size; the last piece may be shorter",
    "cut a list into chunks of at most `size` elements, keeping the order",
    inputs="[1, 2, 3, 4, 5], 2; ['x', 'y', 'z'], 3; [], 4; [9, 8, 7, 6, 5, 4, 3], 3",
)
def chunks(items: list[Any], size: int) -> list[list[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


@reference(
    "unique remove_duplicates dedupe",
    "remove duplicates from a list while keeping the first occurrence of each element",
    "return the distinct elements of a list in the order in which they first appear",
    inputs="[3, 1, 3, 2, 1]; ['b', 'a', 'b']; []; [0, 0, 0, 5]",
)
def unique_in_order(items: list[Any]) -> list[Any]:
    return list(dict.fromkeys(items))


@reference(
    "split_even_odd separate_parity evens_and_odds",
    "split a list of integers into its even and its odd numbers, each in the original order",
    "return a pair of lists: first the even numbers of the input, then the odd ones",
    inputs="[1, 2, 3, 4]; [7, 9]; []; [10, -3, 0, 5, 8]",
)
def partition_by_parity(numbers: list[int]) -> tuple[list[int], list[int]]:
    return [n for n in numbers if n % 2 == 0], [n for n in numbers if n % 2]


@reference(
    "flatten_once concatenate_lists join_lists",
    "flatten a list of lists by one level",
    "concatenate all inner lists of a nested list into a single list",
    inputs="[[1, 2], [3], []]; [[], []]; [['a'], ['b', 'c']]; [[5], [6, [7]]]",
)
def flatten(nested: list[list[Any]]) -> list[Any]:
    return [item for inner in nested for item in inner]


@reference(
    "differences adjacent_differences steps_between",
    "return the differences between each number and the one before it",
    "compute the list of consecutive differences of a list of numbers",
    inputs="[1, 4, 9, 16]; [5]; [10, 7, 7, 2]; [0, -2, 5]",
)
def deltas(numbers: list[int]) -> list[int]:
    return [b - a for a, b in pairwise(numbers)]


@reference(
    "longest_rising_run longest_ascending_streak max_increasing_run",
    "return the length of the longest strictly increasing run of neighbouring elements",
    "find how many elements the longest contiguous strictly increasing stretch has",
    inputs="[1, 2, 2, 3, 4, 5]; []; [5, 4, 3]; [1, 3, 2, 4, 6, 8, 7]",
)
def longest_increasing_run(numbers: list[int]) -> int:
    best = current = 0
    for index, number in enumerate(numbers):
        current = current + 1 if index and number > numbers[index - 1] else 1
        best = max(best, current)
    return best


@reference(
    "pairs_with_total count_pairs_with_sum pair_count",
    "count the pairs of positions i < j whose numbers add up to the target",
    "return in how many ways two different entries of a list can be chosen to sum to the target",
    inputs="[1, 2, 3, 4], 5; [2, 2, 2], 4; [], 0; [8, -3, 5, 0, 5], 5",
)
def count_pairs(numbers: list[int], target: int) -> int:
    seen: Counter[int] = Counter()
    pairs = 0
    for number in numbers:
        pairs += seen[target - number]
        seen[number] += 1
    return pairs


@reference(
    "most_common mode most_frequent_value",
    "return the most frequent element of a list; of several, the one that appears first",
    "find the element that occurs most often, breaking ties by first appearance",
    inputs="[1, 3, 3, 2]; ['red', 'blue', 'blue', 'red']; [7]; [4, 4, 9, 9, 9]",
)
def most_frequent(items: list[Any]) -> Any:
    counts = Counter(items)
    return max(items, key=lambda item: counts[item])


@reference(
    "interleave alternate weave",
    "merge two lists by taking elements alternately; the rest of the longer list goes to the end",
    "interleave two lists and append whatever is left over of the longer one",
    inputs="[1, 3, 5], [2, 4]; [], ['a', 'b']; ['x'], ['y', 'z', 'w']; [0, 0], [1, 1]",
)
def zip_lists(first: list[Any], second: list[Any]) -> list[Any]:
    result: list[Any] = []
    for index in range(max(len(first), len(second))):
        result += first[index : index + 1] + second[index : index + 1]
    return result


@reference(
    "merge_sorted_lists merge_two_sorted sorted_merge",
    "merge two sorted lists of integers into one sorted list without calling sort",
    "combine two ascending lists into a single ascending list in linear time",
    inputs="[1, 4, 6], [2, 3, 9]; [], [5]; [1, 1], [1]; [-5, 0], [-7, 8, 10]",
)
def merge_sorted(first: list[int], second: list[int]) -> list[int]:
    result: list[int] = []
    i = j = 0
    while i < len(first) and j < len(second):
        if first[i] <= second[j]:
            result.append(first[i])
            i += 1
        else:
            result.append(second[j])
            j += 1
    return result + first[i:] + second[j:]


@reference(
    "sliding_sums window_sums moving_sum",
    "return the sums of all windows of the given width that slide over a list",
    "compute the sum of every contiguous block of `width` numbers",
    inputs="[1, 2, 3, 4], 2; [5, 5, 5], 3; [1, 2], 5; [4, -1, 0, 7, 2], 3",
)
def window_totals(numbers: list[int], width: int) -> list[int]:
    return [sum(numbers[i : i + width]) for i in range(len(numbers) - width + 1)]


@reference(
    "missing_numbers gaps absent_values",
    "list the integers between the smallest and the largest element that are not in the list",
    "return, in ascending order, the numbers missing from the range that a list spans",
    inputs="[1, 2, 5]; [3]; [10, 7, 8]; [-2, 2]",
)
def find_gaps(numbers: list[int]) -> list[int]:
    present = set(numbers)
    return [n for n in range(min(numbers), max(numbers) + 1) if n not in present]


@reference(
    "max_subarray_sum largest_block_sum best_stretch",
    "return the largest sum of any non-empty contiguous part of a list",
    "find the maximum total that consecutive elements of the list can have",
    inputs="[2, -1, 3, -5, 4]; [-3, -1, -2]; [7]; [1, 2, -10, 5, 6]",
)
def best_sum(numbers: list[int]) -> int:
    best = current = numbers[0]
    for number in numbers[1:]:
        current = max(number, current + number)
        best = max(best, current)
    return best


@reference(
    "move_zeros zeros_last push_zeros_back",
    "move all zeros of a list to its end and keep the order of the other numbers",
    "return a new list with the nonzero numbers first, in order, followed by the zeros",
    inputs="[0, 1, 0, 3, 12]; [0, 0]; [4, 5]; [6, 0, -2]",
)
def move_zeros_to_end(numbers: list[int]) -> list[int]:
    rest = [n for n in numbers if n != 0]
    return rest + [0] * (len(numbers) - len(rest))


@reference(
    "peak_indices local_maxima find_peaks",
    "return the positions of all elements that are greater than both of their neighbours",
    "find the indices of the local maxima of a list; the two ends never count",
    inputs="[1, 3, 2, 5, 4]; [1, 2, 3]; []; [0, 9, 0, 9, 9, 0]",
)
def peaks(numbers: list[int]) -> list[int]:
    return [i for i in range(1, len(numbers) - 1) if numbers[i - 1] < numbers[i] > numbers[i + 1]]


@reference(
    "run_lengths encode_runs count_runs",
    "encode a list as pairs of an element and how many times it repeats in a row",
    "compute the run-length encoding of a list as (element, count) tuples",
    inputs="[1, 1, 2, 3, 3, 3]; []; ['a', 'b', 'b']; [0, 1, 0]",
)
def run_length_encode(items: list[Any]) -> list[tuple[Any, int]]:
    runs: list[tuple[Any, int]] = []
    for item in items:
        if runs and runs[-1][0] == item:
            runs[-1] = (item, runs[-1][1] + 1)
        else:
            runs.append((item, 1))
    return runs


@reference(
    "moving_average rolling_mean smooth",
    "return the averages of all windows of k neighbouring numbers, rounded to two decimals",
    "smooth a list of numbers by a moving average over k values; round to 2 digits",
    inputs="[1, 2, 3, 4], 2; [10, 20, 60], 3; [5, 7], 1; [1.5, 2.5, 4.0, 0.0], 2",
)
def rolling_average(numbers: list[float], k: int) -> list[float]:
    return [round(sum(numbers[i : i + k]) / k, 2) for i in range(len(numbers) - k + 1)]


@reference(
    "majority majority_item dominant_element",
    "return the element that makes up more than half of the list, or None if there is none",
    "find the majority element of a list, which must occur in more than half of the positions",
    inputs="[2, 2, 1, 2]; [1, 2]; ['a']; [3, 3, 4, 4, 3]",
)
def majority_element(items: list[Any]) -> Any | None:
    for item, count in Counter(items).items():
        if count > len(items) / 2:
            return item
    return None


@reference(
    "count_inversions inversions disorder",
    "count the pairs of positions i < j for which the earlier number is larger",
    "return the number of inversions in a list of integers",
    inputs="[1, 2, 3]; [3, 2, 1]; [2, 4, 1, 3]; [5, 5, 1]",
)
def inversion_count(numbers: list[int]) -> int:
    return sum(
        numbers[i] > numbers[j] for i in range(len(numbers)) for j in range(i + 1, len(numbers))
    )


@reference(
    "every_nth take_every stride",
    "return every n-th element of a list, starting with the first",
    "keep one element out of every n of a list, beginning at position 0",
    inputs="[1, 2, 3, 4, 5, 6, 7], 3; ['a', 'b', 'c'], 1; [], 2; [10, 20, 30, 40], 2",
)
def nth_elements(items: list[Any], n: int) -> list[Any]:
    return items[::n]
