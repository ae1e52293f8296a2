"""Functions about games."""

from itertools import pairwise

from slipstream.training.prompts.functions import reference


@reference(
    "bowling bowling_score score_bowling",
    "score a bowling game of complete frames given as (first, second) throws without bonus balls "
    "for the last frame; a spare counts the next throw, a strike the next frame",
    inputs="[(3, 4), (5, 5), (2, 6)]; [(10, 0), (3, 4)]; [(0, 0)]",
)
def bowling_points(frames: list[tuple[int, int]]) -> int:
    points = sum(sum(frame) for frame in frames)
    for frame, following in pairwise(frames):
        if frame[0] == 10:
            points += sum(following)
        elif sum(frame) == 10:
            points += following[0]
    return points


@reference(
    "league_table standings rank_teams",
    "rank teams by points from results (home, away, home goals, away goals): 3 for a win, 1 for a "
    "draw; equal points go by name",
    inputs="[('A', 'B', 2, 1), ('B', 'C', 0, 0)]; [('X', 'Y', 1, 3)]; []",
)
def league_ranking(results: list[tuple[str, str, int, int]]) -> list[str]:
    points: dict[str, int] = {}
    for home, away, scored, conceded in results:
        points[home] = points.get(home, 0) + 3 * (scored > conceded) + (scored == conceded)
        points[away] = points.get(away, 0) + 3 * (conceded > scored) + (scored == conceded)
    return sorted(points, key=lambda team: (-points[team], team))


@reference(
    "poker_pairs hand_kind rate_hand",
    "name the best of 'four', 'full house', 'three', 'two pairs', 'pair' and 'nothing' in "
    "five ranks",
    "rate a hand of five cards, given only by their ranks, by how many are equal",
    inputs="[2, 2, 5, 5, 9]; [7, 7, 7, 3, 3]; [1, 2, 3, 4, 6]; [8, 8, 8, 8, 1]",
)
def hand_name(ranks: list[int]) -> str:
    counts = sorted((ranks.count(rank) for rank in set(ranks)), reverse=True)
    names = {(4,): "four", (3, 2): "full house", (3,): "three", (2, 2): "two pairs", (2,): "pair"}
    return names.get(tuple(count for count in counts if count > 1), "nothing")


@reference(
    "dice_score score_dice three_dice",
    "score three dice: three equal ones give 100 times the number, otherwise their sum",
    "return the points for a throw of three dice; a triple counts a hundredfold",
    inputs="[2, 2, 2]; [1, 5, 6]; [6, 6, 6]; [3, 3, 4]",
)
def dice_points(dice: list[int]) -> int:
    return 100 * dice[0] if len(set(dice)) == 1 else sum(dice)


@reference(
    "rock_paper_scissors decide_round rps_winner",
    "return 1 or 2 for the winner of a round of rock, paper, scissors, or 0 for a draw",
    "decide who wins: rock beats scissors, scissors beat paper, paper beats rock",
    inputs="'rock', 'scissors'; 'paper', 'paper'; 'paper', 'scissors'",
)
def round_winner(first: str, second: str) -> int:
    if first == second:
        return 0
    wins = {("rock", "scissors"), ("scissors", "paper"), ("paper", "rock")}
    return 1 if (first, second) in wins else 2


@reference(
    "next_generation game_of_life_row evolve",
    "compute the next row of a cellular automaton in which a cell lives if exactly one "
    "neighbour does",
    "advance a row of 0s and 1s: a cell becomes 1 if exactly one of its two neighbours is 1",
    inputs="[0, 1, 0]; [1, 1, 1, 0]; [0, 0, 1, 0, 0]; []",
)
def next_row(cells: list[int]) -> list[int]:
    padded = [0, *cells, 0]
    return [padded[i] ^ padded[i + 2] for i in range(len(cells))]


@reference(
    "knight_moves knight_targets possible_knight_moves",
    "list the squares, such as 'c3', that a knight can reach from a square of a chess board, "
    "sorted",
    "return all legal destinations of a knight on an otherwise empty 8 by 8 board in sorted order",
    inputs="'a1'; 'd4'; 'h8'",
)
def knight_squares(square: str) -> list[str]:
    column, row = ord(square[0]), int(square[1])
    jumps = [(1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2)]
    squares = [(chr(column + x), row + y) for x, y in jumps]
    return sorted(f"{c}{r}" for c, r in squares if "a" <= c <= "h" and 1 <= r <= 8)


@reference(
    "square_colour color_of_square chess_square",
    "tell whether a square of a chess board, such as 'e4', is 'black' or 'white'",
    "return the colour of a chess square; a1 is black",
    inputs="'a1'; 'e4'; 'h8'; 'd5'",
)
def square_color(square: str) -> str:
    return "black" if (ord(square[0]) + int(square[1])) % 2 == 0 else "white"


@reference(
    "queen_attacks attacks can_capture",
    "check whether two queens on the given (row, column) squares attack each other",
    "tell whether two chess queens share a row, a column or a diagonal",
    inputs="(1, 1), (4, 4); (0, 3), (2, 4); (5, 2), (5, 7)",
)
def queens_attack(first: tuple[int, int], second: tuple[int, int]) -> bool:
    rows, columns = abs(first[0] - second[0]), abs(first[1] - second[1])
    return rows == 0 or columns == 0 or rows == columns


@reference(
    "scrabble scrabble_score word_points",
    "add up the points of a word: 1 for each vowel, 2 for each other letter, doubled from 7 "
    "letters on",
    "score a word: vowels count one, consonants two; words with at least seven letters count twice",
    inputs="'tree'; 'bicycle'; ''; 'aeiou'",
)
def word_score(word: str) -> int:
    points = sum(1 if letter in "aeiou" else 2 for letter in word)
    return points * 2 if len(word) >= 7 else points


@reference(
    "share_candy distribute_sweets candy_shares",
    "hand out sweets to children in turn, 1, 2, 3, ... at a time, until none are left",
    "return how many sweets each of n children gets if every gift is one larger than the last",
    inputs="7, 4; 10, 3; 0, 2; 1, 1",
)
def sweets_per_child(sweets: int, n: int) -> list[int]:
    shares, gift = [0] * n, 0
    while sweets:
        given = min(gift + 1, sweets)
        shares[gift % n] += given
        sweets -= given
        gift += 1
    return shares


@reference(
    "robot_path_returns returns_home is_closed_walk",
    "check whether a robot that follows the letters N, E, S and W ends where it started",
    "tell whether a walk made of unit steps north, east, south and west is closed",
    inputs="'NESW'; 'NN'; ''; 'EEWWNS'",
)
def comes_back(path: str) -> bool:
    return path.count("N") == path.count("S") and path.count("E") == path.count("W")
