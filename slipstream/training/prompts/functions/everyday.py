"""Functions about shops, traffic, measurements and other everyday things."""

from itertools import pairwise

from slipstream.training.prompts.functions import reference


@reference(
    "bill_total sum_bill receipt_total",
    "return the total of a bill given as (quantity, unit price) pairs, with a discount in percent",
    "add up quantity times price of all positions, subtract the discount and round to cents",
    inputs="[(2, 3.5), (1, 10.0)], 0; [(4, 25.0)], 10; [], 50; [(3, 1.99)], 5",
)
def invoice_total(positions: list[tuple[int, float]], discount: float) -> float:
    total = sum(quantity * price for quantity, price in positions)
    return round(total * (1 - discount / 100), 2)


@reference(
    "ticket_price entrance_fee admission",
    "compute the price of a ticket: free below 6 years, 5 up to 17 years, 12 otherwise, and "
    "one less for members who have to pay",
    inputs="4, False; 12, True; 30, False; 17, True",
)
def fee(age: int, member: bool) -> int:
    if age < 6:
        return 0
    return (5 if age < 18 else 12) - member


@reference(
    "body_mass_index bmi_class weight_class",
    "classify the body mass index of a weight in kg and a height in m: 'low', 'normal' or 'high'",
    "divide the weight by the squared height; below 18.5 is 'low', from 25 on 'high'",
    inputs="70, 1.75; 50, 1.8; 90, 1.7",
)
def bmi_category(weight: float, height: float) -> str:
    index = weight / height**2
    return "low" if index < 18.5 else "normal" if index < 25 else "high"


@reference(
    "letter_grade to_grade mark_to_letter",
    "turn a score from 0 to 100 into a letter: A from 90, B from 80, C from 70, D from 60, else F",
    "map points to the grades A, B, C, D and F in steps of ten",
    inputs="95; 80; 59; 71",
)
def grade(score: int) -> str:
    return next((g for g, low in zip("ABCD", (90, 80, 70, 60), strict=True) if score >= low), "F")


@reference(
    "tax_due income_tax compute_tax",
    "compute a tax in brackets: nothing up to 10000, 20 percent up to 40000, 40 percent above",
    "return the income tax: only the part of the income inside a bracket is taxed at its rate",
    inputs="8000; 20000; 50000; 10000",
)
def bracket_tax(income: int) -> float:
    middle = max(0, min(income, 40000) - 10000)
    top = max(0, income - 40000)
    return (middle * 20 + top * 40) / 100


@reference(
    "months_to_pay payoff_months loan_duration",
    "count the months until a debt without interest is paid, given the monthly payment",
    "return how many payments are needed to pay off an amount, the last one may be smaller",
    inputs="1000, 100; 1050, 100; 0, 50; 99, 100",
)
def payments_needed(debt: int, payment: int) -> int:
    return -(-debt // payment)


@reference(
    "change_due coins_back return_change",
    "list the coins, largest first, that a machine returns for an overpaid amount in cents",
    "pay out the difference between paid and price in coins of 100, 50, 20, 10, 5, 2 and 1",
    inputs="130, 200; 95, 100; 50, 50; 1, 9",
)
def coins_returned(price: int, paid: int) -> list[int]:
    rest, coins = paid - price, []
    for coin in (100, 50, 20, 10, 5, 2, 1):
        while rest >= coin:
            coins.append(coin)
            rest -= coin
    return coins


@reference(
    "simulate_parking free_places parking",
    "follow a list of '+' and '-' for cars that enter and leave a garage; return the free places "
    "at the end, where cars that find no place drive on",
    inputs="3, ['+', '+', '-']; 1, ['+', '+', '+']; 2, []; 2, ['+', '+', '+', '-']",
)
def places_left(capacity: int, events: list[str]) -> int:
    cars = 0
    for event in events:
        cars = min(capacity, cars + 1) if event == "+" else max(0, cars - 1)
    return capacity - cars


@reference(
    "elevator_stops floors_travelled elevator_distance",
    "return how many floors a lift travels that starts at floor 0 and serves the calls in order",
    "add up the distances between the floors of a list, starting from the ground floor",
    inputs="[3, 1, 5]; []; [2, 2]; [-1, 4]",
)
def lift_distance(floors: list[int]) -> int:
    return sum(abs(a - b) for a, b in pairwise([0, *floors]))


@reference(
    "fuel_left remaining_fuel tank_after",
    "return how many litres are left after trips of the given kilometres, or -1 if the tank "
    "runs dry",
    "subtract the fuel for each trip at the given litres per 100 km; -1 as soon as it is not "
    "enough",
    inputs="50, 8, [100, 200]; 10, 10, [50, 60]; 40, 5, []",
)
def fuel_after(tank: float, per_100: float, trips: list[int]) -> float:
    for trip in trips:
        tank -= trip * per_100 / 100
        if tank < 0:
            return -1
    return tank


@reference(
    "heat_wave longest_heat_wave hot_days",
    "return the largest number of consecutive days with at least the given temperature",
    "find the length of the longest heat wave in a list of daily temperatures",
    inputs="[28, 31, 33, 29, 30], 30; [20, 21], 25; [], 30; [35, 36, 37], 35",
)
def hot_stretch(temperatures: list[int], limit: int) -> int:
    best = current = 0
    for temperature in temperatures:
        current = current + 1 if temperature >= limit else 0
        best = max(best, current)
    return best


@reference(
    "warmer_day days_until_warmer wait_for_warmth",
    "for each day return how many days one has to wait for a warmer one, 0 if it never comes",
    "compute the distance to the next higher temperature for every entry of a list",
    inputs="[20, 22, 19, 25]; [30, 29]; []; [10, 10, 11]",
)
def days_to_wait(temperatures: list[int]) -> list[int]:
    waits = []
    for day, temperature in enumerate(temperatures):
        later = temperatures[day + 1 :]
        waits.append(next((i for i, t in enumerate(later, 1) if t > temperature), 0))
    return waits


@reference(
    "water_plants refills trips_to_tap",
    "count how often a can must be refilled to water plants in order with the given needs, if it "
    "starts full and is refilled whenever it does not hold enough for the next plant",
    inputs="[2, 3, 2, 4], 5; [1, 1, 1], 3; [], 2; [4, 4], 4",
)
def refill_count(needs: list[int], capacity: int) -> int:
    water, refills = capacity, 0
    for need in needs:
        if water < need:
            water, refills = capacity, refills + 1
        water -= need
    return refills


@reference(
    "boats_needed rescue_boats count_boats",
    "return how many boats for at most two people each are needed, given weights and a limit "
    "per boat",
    "pair light with heavy people so that as few boats as possible are used",
    inputs="[70, 50, 80, 50], 100; [90], 100; [], 80; [40, 40, 40], 80",
)
def boat_count(weights: list[int], limit: int) -> int:
    ordered, boats = sorted(weights), 0
    while ordered:
        heaviest = ordered.pop()
        if ordered and ordered[0] + heaviest <= limit:
            ordered.pop(0)
        boats += 1
    return boats


@reference(
    "pack_boxes boxes_needed fill_boxes",
    "pack items of the given sizes in order into boxes, opening a new box when one does not fit; "
    "return the contents of the boxes",
    inputs="[3, 4, 2, 5], 7; [1, 1, 1], 10; [], 5; [5, 5], 5",
)
def packed_boxes(sizes: list[int], capacity: int) -> list[list[int]]:
    boxes: list[list[int]] = []
    for size in sizes:
        if boxes and sum(boxes[-1]) + size <= capacity:
            boxes[-1].append(size)
        else:
            boxes.append([size])
    return boxes


@reference(
    "seating_plan assign_seats seats",
    "assign the names to seats 1, 2, ... in alphabetical order and return a dictionary",
    "number the guests alphabetically, starting with 1",
    inputs="['Mia', 'Ali', 'Zoe']; []; ['Bo']",
)
def seat_numbers(names: list[str]) -> dict[str, int]:
    return {name: seat for seat, name in enumerate(sorted(names), 1)}


@reference(
    "who_owes settle_debts balances",
    "compute for each person what was paid minus an equal share of all costs, in whole cents",
    "return the balance of everybody who shared expenses: positive amounts are to be paid back",
    inputs="{'Ann': 900, 'Ben': 300}; {'X': 100, 'Y': 100}; {'P': 0, 'Q': 600, 'R': 300}",
)
def expense_balances(paid: dict[str, int]) -> dict[str, int]:
    share = sum(paid.values()) // len(paid)
    return {name: amount - share for name, amount in paid.items()}


@reference(
    "traffic_light light_at light_colour",
    "return the colour of a traffic light t seconds after it turned green: 30 s green, 5 s "
    "yellow, 25 s red",
    "tell which light is on after t seconds of a cycle that starts with green",
    inputs="0; 32; 59; 61",
)
def light_after(t: int) -> str:
    second = t % 60
    return "green" if second < 30 else "yellow" if second < 35 else "red"


@reference(
    "next_bus wait_time minutes_to_bus",
    "return the minutes until the next departure; departures are minutes of the day in "
    "ascending order",
    "find how long one waits for the next bus; after the last one, wait for the first of the "
    "next day",
    inputs="[420, 450, 480], 430; [420, 450], 450; [360], 1400",
)
def waiting_time(departures: list[int], now: int) -> int:
    later = [departure for departure in departures if departure >= now]
    return later[0] - now if later else departures[0] + 24 * 60 - now


@reference(
    "password_strength strength rate_password",
    "rate a password from 0 to 4: one point each for 8 characters, a digit, a capital and a sign",
    "count which of four properties a password has: length of 8, digit, upper case, special sign",
    inputs="'abc'; 'Passw0rd'; 'hello world!'; 'S3cure#Key'",
)
def password_points(text: str) -> int:
    return sum(
        (
            len(text) >= 8,
            any(c.isdigit() for c in text),
            any(c.isupper() for c in text),
            any(not c.isalnum() for c in text),
        )
    )


@reference(
    "temperature_summary describe_temperatures min_max_mean",
    "return the minimum, the maximum and the mean (to one decimal) of a list of temperatures",
    "summarise measurements as a tuple of smallest, largest and average value",
    inputs="[20, 25, 18]; [5]; [-3, 0, 4, 6]",
)
def summary(temperatures: list[int]) -> tuple[int, int, float]:
    mean = sum(temperatures) / len(temperatures)
    return min(temperatures), max(temperatures), round(mean, 1)


@reference(
    "text_bar_chart bar_chart draw_bars",
    "draw a horizontal bar chart as lines: the name, a space and one '#' per unit",
    "return one line per entry of a dictionary with as many # signs as its value",
    inputs="{'a': 3, 'b': 1}; {}; {'mon': 2, 'tue': 0}",
)
def bars(counts: dict[str, int]) -> list[str]:
    return [f"{name} {'#' * count}" for name, count in counts.items()]


@reference(
    "recipe_scaled scale_recipe for_people",
    "scale the amounts of a recipe from one number of people to another, rounded to one decimal",
    "convert ingredient amounts for `people` persons to amounts for `guests` persons",
    inputs="{'flour': 200, 'eggs': 2}, 4, 6; {}, 2, 3; {'rice': 150}, 3, 1",
)
def scaled(recipe: dict[str, float], people: int, guests: int) -> dict[str, float]:
    return {name: round(amount * guests / people, 1) for name, amount in recipe.items()}


@reference(
    "undo_history apply_edits type_text",
    "build a text from keystrokes in which '<' deletes the last letter",
    "simulate typing with a backspace key, written as '<'",
    inputs="'helo<lo'; '<<a'; ''; 'abc<<<'",
)
def typed(keys: str) -> str:
    text = ""
    for key in keys:
        text = text[:-1] if key == "<" else text + key
    return text


@reference(
    "half_life remaining_amount decay",
    "return what is left of an amount after some time, given the half-life, rounded to two "
    "decimals",
    "compute radioactive decay: the amount halves once per half-life",
    inputs="100, 5, 10; 80, 3, 0; 64, 2, 5",
)
def left_after(amount: float, half: float, time: float) -> float:
    return float(round(amount * 0.5 ** (time / half), 2))


@reference(
    "complement dna_complement reverse_strand",
    "return the reverse complement of a DNA string: A and T, C and G are exchanged",
    "read a DNA strand backwards and replace every base by its partner",
    inputs="'ATGC'; ''; 'AAAC'; 'GATTACA'",
)
def reverse_complement(strand: str) -> str:
    return strand[::-1].translate(str.maketrans("ATCG", "TAGC"))


@reference(
    "gc_content gc_share gc_percent",
    "return the percentage of G and C in a DNA string, rounded to one decimal; 0.0 if it is empty",
    "compute how many percent of the bases of a strand are G or C",
    inputs="'GGCC'; 'ATGC'; ''; 'AAT'",
)
def gc(strand: str) -> float:
    hits = strand.count("G") + strand.count("C")
    return round(100 * hits / len(strand), 1) if strand else 0.0


@reference(
    "parallel_resistance total_resistance combined_resistance",
    "return the total resistance of resistors in parallel, rounded to two decimals",
    "add the inverses of the resistances and return the inverse of the sum",
    inputs="[10, 10]; [6, 3]; [5]; [2, 4, 4]",
)
def in_parallel(ohms: list[float]) -> float:
    return round(1 / sum(1 / ohm for ohm in ohms), 2)
