"""Functions over matrices, grids, intervals and points."""

from itertools import pairwise
from typing import Any

from slipstream.training.prompts.functions import reference


@reference(
    "transposed swap_rows_and_columns flip_matrix",
    "transpose a matrix given as a list of rows",
    "turn the rows of a matrix into its columns",
    inputs="[[1, 2, 3], [4, 5, 6]]; [[7]]; [[1, 2], [3, 4]]",
)
def transpose(matrix: list[list[int]]) -> list[list[int]]:
    return [list(column) for column in zip(*matrix, strict=True)]


@reference(
    "rotate_matrix turn_right rotate_90",
    "rotate a square matrix by 90 degrees clockwise and return the result",
    "turn a grid a quarter to the right",
    inputs="[[1, 2], [3, 4]]; [[5]]; [[1, 2, 3], [4, 5, 6], [7, 8, 9]]",
)
def rotate_clockwise(matrix: list[list[int]]) -> list[list[int]]:
    return [list(row) for row in zip(*matrix[::-1], strict=True)]


@reference(
    "multiply_matrices mat_mul matrix_multiply",
    "multiply two matrices given as lists of rows",
    "compute the product of two matrices",
    inputs="[[1, 2], [3, 4]], [[5, 6], [7, 8]]; [[2]], [[3]]; [[1, 0]], [[4], [9]]",
)
def matrix_product(first: list[list[int]], second: list[list[int]]) -> list[list[int]]:
    columns = list(zip(*second, strict=True))
    return [
        [sum(a * b for a, b in zip(row, column, strict=True)) for column in columns]
        for row in first
    ]


@reference(
    "diagonal_sum trace sum_diagonal",
    "return the sum of the main diagonal of a square matrix",
    "compute the trace of a square matrix",
    inputs="[[1, 2], [3, 4]]; [[9]]; [[1, 0, 0], [0, 5, 0], [7, 0, -2]]",
)
def matrix_trace(matrix: list[list[int]]) -> int:
    return sum(row[index] for index, row in enumerate(matrix))


@reference(
    "spiral spiral_order unroll_spiral",
    "return the elements of a matrix in spiral order, clockwise from the top left",
    "read a matrix in a spiral from the outside to the inside",
    inputs="[[1, 2, 3], [4, 5, 6], [7, 8, 9]]; [[1, 2], [3, 4]]; [[5, 6, 7]]; []",
)
def read_spiral(matrix: list[list[int]]) -> list[int]:
    result: list[int] = []
    while matrix:
        result += matrix[0]
        matrix = [list(row) for row in zip(*matrix[1:], strict=True)][::-1]
    return result


@reference(
    "is_symmetric symmetric check_symmetry",
    "check whether a square matrix equals its transpose",
    "tell whether a matrix is symmetric about its main diagonal",
    inputs="[[1, 2], [2, 5]]; [[1, 2], [3, 4]]; [[0]]",
)
def symmetric_matrix(matrix: list[list[int]]) -> bool:
    n = len(matrix)
    return all(matrix[i][j] == matrix[j][i] for i in range(n) for j in range(i))


@reference(
    "row_maxima largest_per_row max_of_rows",
    "return the largest element of each row of a matrix",
    "find the maximum of every row",
    inputs="[[1, 9, 3], [4, 2, 0]]; [[-5]]; [[1, 2], [2, 1], [0, 0]]",
)
def row_max(matrix: list[list[int]]) -> list[int]:
    return [max(row) for row in matrix]


@reference(
    "sum_columns column_totals totals",
    "return the sum of each column of a matrix",
    "add up the columns of a table of numbers",
    inputs="[[1, 2], [3, 4]]; [[5, 0, 5]]; [[1], [1], [1]]",
)
def column_sums(matrix: list[list[int]]) -> list[int]:
    return [sum(column) for column in zip(*matrix, strict=True)]


@reference(
    "count_islands number_of_islands islands",
    "count the groups of ones in a grid that touch horizontally or vertically",
    "return the number of islands of 1s in a grid of 0s and 1s",
    inputs="[[1, 0, 1], [1, 0, 0]]; [[0]]; [[1, 1], [1, 1]]; [[1, 0], [0, 1]]",
)
def island_count(grid: list[list[int]]) -> int:
    land = {(i, j) for i, row in enumerate(grid) for j, cell in enumerate(row) if cell}
    islands = 0
    while land:
        islands += 1
        waiting = [land.pop()]
        while waiting:
            i, j = waiting.pop()
            for cell in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
                if cell in land:
                    land.remove(cell)
                    waiting.append(cell)
    return islands


@reference(
    "live_neighbours count_neighbors neighbours_alive",
    "count the ones among the up to eight cells around a cell of a grid",
    "return how many neighbours of the cell in the given row and column are 1",
    inputs="[[1, 1], [0, 1]], 0, 0; [[0, 0, 0], [0, 1, 0], [0, 0, 0]], 1, 1; [[1, 1, 1]], 0, 1",
)
def neighbours(grid: list[list[int]], row: int, column: int) -> int:
    around = [(row + i, column + j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
    return sum(grid[i][j] for i, j in around if 0 <= i < len(grid) and 0 <= j < len(grid[0]))


@reference(
    "count_grid_paths lattice_paths robot_paths",
    "count the ways from the top left to the bottom right of a grid, going only right or down",
    "return the number of shortest paths through a grid with the given rows and columns",
    inputs="2, 2; 1, 5; 3, 3; 3, 7",
)
def grid_paths(rows: int, columns: int) -> int:
    ways = [1] * columns
    for _ in range(rows - 1):
        for j in range(1, columns):
            ways[j] += ways[j - 1]
    return ways[-1]


@reference(
    "minimum_path cheapest_path min_path_sum",
    "return the smallest sum on a path through a grid that goes only right or down",
    "find the cheapest way from the top left to the bottom right corner of a grid of costs",
    inputs="[[1, 3], [2, 1]]; [[5]]; [[1, 1, 9], [9, 1, 1]]",
)
def path_cost(grid: list[list[int]]) -> int:
    best: dict[tuple[int, int], int] = {}
    for i, row in enumerate(grid):
        for j, cost in enumerate(row):
            before = [best[place] for place in ((i - 1, j), (i, j - 1)) if place in best]
            best[i, j] = cost + min(before, default=0)
    return best[len(grid) - 1, len(grid[0]) - 1]


@reference(
    "is_magic_square magic check_magic",
    "check whether all rows, columns and both diagonals of a square grid have the same sum",
    "tell whether a square matrix of numbers is a magic square",
    inputs="[[2, 7, 6], [9, 5, 1], [4, 3, 8]]; [[1, 2], [3, 4]]; [[1]]",
)
def magic_square(grid: list[list[int]]) -> bool:
    n = len(grid)
    sums = {sum(row) for row in grid} | {sum(column) for column in zip(*grid, strict=True)}
    sums |= {sum(grid[i][i] for i in range(n)), sum(grid[i][n - 1 - i] for i in range(n))}
    return len(sums) == 1


@reference(
    "merge_ranges merge_intervals combine_intervals",
    "merge overlapping or touching intervals and return them in ascending order",
    "combine intervals (start, end) that share a point into larger ones",
    inputs="[(1, 3), (2, 6), (8, 10)]; []; [(5, 7), (1, 5)]; [(1, 2), (3, 4)]",
)
def merged(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    result: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


@reference(
    "overlap_length shared_length common_length",
    "return the length of the overlap of two intervals, 0 if they do not overlap",
    "compute how long two time spans (start, end) overlap",
    inputs="(1, 5), (3, 9); (0, 2), (4, 6); (2, 8), (3, 4); (1, 2), (2, 3)",
)
def overlap(first: tuple[int, int], second: tuple[int, int]) -> int:
    return max(0, min(first[1], second[1]) - max(first[0], second[0]))


@reference(
    "can_attend_all no_conflicts meetings_fit",
    "check whether no two meetings (start, end) overlap; one may begin when another ends",
    "tell whether one person can attend all meetings of a list",
    inputs="[(9, 10), (10, 11)]; [(9, 12), (11, 13)]; []; [(14, 15), (8, 9)]",
)
def free_of_conflicts(meetings: list[tuple[int, int]]) -> bool:
    ordered = sorted(meetings)
    return all(a[1] <= b[0] for a, b in pairwise(ordered))


@reference(
    "rooms_needed min_rooms max_overlap",
    "return how many meeting rooms are needed so that no two meetings share a room at a time",
    "compute the largest number of intervals (start, end) that are open at the same moment",
    inputs="[(9, 12), (10, 11), (11, 13)]; []; [(1, 2), (2, 3)]; [(0, 9), (1, 8), (2, 7)]",
)
def meeting_rooms(meetings: list[tuple[int, int]]) -> int:
    events = sorted([(start, 1) for start, _ in meetings] + [(end, -1) for _, end in meetings])
    open_now = most = 0
    for _, step in events:
        open_now += step
        most = max(most, open_now)
    return most


@reference(
    "subtract_interval remove_span interval_minus",
    "subtract a span from an interval and return the one or two parts that are left",
    "return what remains of an interval (start, end) when another one is cut out of it",
    inputs="(0, 10), (3, 5); (0, 4), (4, 9); (2, 6), (0, 9); (1, 5), (3, 8)",
)
def cut_out(whole: tuple[int, int], hole: tuple[int, int]) -> list[tuple[int, int]]:
    left = (whole[0], min(whole[1], hole[0]))
    right = (max(whole[0], hole[1]), whole[1])
    return [part for part in (left, right) if part[0] < part[1]]


@reference(
    "closest_to_origin nearest_points k_nearest",
    "return the k points closest to the origin, the nearest first",
    "find the k (x, y) points with the smallest distance from (0, 0), in ascending order",
    inputs="[(3, 4), (1, 1), (0, 2)], 2; [(5, 5)], 1; [(-1, 0), (2, 2)], 0",
)
def nearest(points: list[tuple[int, int]], k: int) -> list[tuple[int, int]]:
    return sorted(points, key=lambda p: p[0] ** 2 + p[1] ** 2)[:k]


@reference(
    "bounding_box enclosing_box limits",
    "return the smallest rectangle (left, bottom, right, top) that contains all points",
    "compute the bounding box of a non-empty list of (x, y) points",
    inputs="[(1, 2), (4, 0), (3, 5)]; [(7, 7)]; [(-1, -1), (1, 1)]",
)
def box(points: list[tuple[int, int]]) -> tuple[int, int, int, int]:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return min(xs), min(ys), max(xs), max(ys)


@reference(
    "polygon_area shoelace area_of_polygon",
    "compute the area of a simple polygon from its corners with the shoelace formula",
    "return the area enclosed by a list of (x, y) corner points",
    inputs="[(0, 0), (4, 0), (4, 3)]; [(0, 0), (2, 0), (2, 2), (0, 2)]; [(0, 0), (1, 1), (2, 0)]",
)
def area(points: list[tuple[int, int]]) -> float:
    pairs = zip(points, points[1:] + points[:1], strict=True)
    return abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in pairs)) / 2


@reference(
    "final_position walk robot_position",
    "follow a string of moves U, D, L and R from (0, 0) and return the position at the end",
    "compute where a robot stands after the given moves; U is up, which adds 1 to y",
    inputs="'UUR'; ''; 'LRLR'; 'DDLLU'",
)
def follow_moves(moves: str) -> tuple[int, int]:
    steps = {"U": (0, 1), "D": (0, -1), "L": (-1, 0), "R": (1, 0)}
    x = y = 0
    for move in moves:
        x, y = x + steps[move][0], y + steps[move][1]
    return x, y


@reference(
    "draw_triangle star_triangle stars",
    "return the lines of a triangle of asterisks with the given height, one star on top",
    "build a right-angled triangle of stars as a list of strings",
    inputs="3; 1; 0; 4",
)
def triangle(height: int) -> list[str]:
    return ["*" * width for width in range(1, height + 1)]


@reference(
    "format_table render_table align_columns",
    "format rows of strings as lines whose columns are padded to equal width, two spaces apart",
    "align the columns of a small table of strings; do not leave spaces at line ends",
    inputs="[['a', 'bb'], ['ccc', 'd']]; [['x']]; [['id', 'name'], ['7', 'Eve']]",
)
def table(rows: list[list[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    return [line.rstrip() for line in lines]


@reference(
    "tic_tac_toe_winner winner_of_board who_won",
    "return 'X' or 'O' if that player has three in a row on a 3 by 3 board, or None",
    "find the winner of a game of tic-tac-toe given as three strings; empty cells are '.'",
    inputs="['XXX', 'O.O', '...']; ['XO.', '.O.', 'XOX']; ['...', '...', '...']",
)
def board_winner(board: list[str]) -> str | None:
    lines = [*board, *("".join(column) for column in zip(*board, strict=True))]
    lines += ["".join(board[i][i] for i in range(3)), "".join(board[i][2 - i] for i in range(3))]
    return next((player for player in "XO" if player * 3 in lines), None)


@reference(
    "pad_grid add_border frame_grid",
    "surround a grid with a border of the given value and return the new grid",
    "add one row and column of a fill value on every side of a matrix",
    inputs="[[1]], 0; [[1, 2], [3, 4]], 9; [['a', 'b']], '-'",
)
def with_border(grid: list[list[Any]], value: Any) -> list[list[Any]]:
    width = len(grid[0]) + 2
    return [[value] * width, *([value, *row, value] for row in grid), [value] * width]
