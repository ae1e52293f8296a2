"""Functions over dates, times and durations."""

from datetime import date, timedelta

from slipstream.training.prompts.functions import reference


@reference(
    "leap is_leap check_leap_year",
    "tell whether a year of the Gregorian calendar is a leap year",
    "check whether February of the given year has 29 days",
    inputs="2024; 1900; 2000; 2023",
)
def is_leap_year(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


@reference(
    "month_length days_of_month number_of_days",
    "return how many days a month of a given year has",
    "compute the number of days in a month, taking leap years into account",
    inputs="2024, 2; 2023, 2; 2023, 12; 1999, 4",
)
def days_in_month(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


@reference(
    "days_apart day_difference count_days",
    "return the number of days between two dates written as YYYY-MM-DD, never negative",
    "compute how many days lie between two ISO dates",
    inputs="'2024-01-01', '2024-03-01'; '2023-05-05', '2023-05-05'; '2022-12-31', '2022-12-01'",
)
def days_between(first: str, second: str) -> int:
    return abs((date.fromisoformat(first) - date.fromisoformat(second)).days)


@reference(
    "weekday_name day_name name_of_day",
    "return the English name of the weekday of a date written as YYYY-MM-DD",
    "tell on which day of the week an ISO date falls",
    inputs="'2024-02-29'; '2000-01-01'; '1969-07-20'",
)
def weekday(day: str) -> str:
    names = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    return names[date.fromisoformat(day).weekday()]


@reference(
    "add_workdays business_days_later after_working_days",
    "return the date n working days (Monday to Friday) after a date, both as YYYY-MM-DD",
    "add a number of business days to an ISO date, skipping Saturdays and Sundays",
    inputs="'2024-05-03', 1; '2024-05-06', 5; '2023-12-29', 2",
)
def add_business_days(day: str, n: int) -> str:
    current = date.fromisoformat(day)
    while n:
        current += timedelta(days=1)
        n -= current.weekday() < 5
    return current.isoformat()


@reference(
    "format_seconds hms readable_duration",
    "write a number of seconds in the form H:MM:SS",
    "format a duration given in seconds as hours, minutes and seconds",
    inputs="3661; 59; 0; 86399",
)
def format_duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


@reference(
    "parse_time minutes_of_day time_to_minutes",
    "convert a time such as '14:30' to the number of minutes since midnight",
    "return how many minutes of the day have passed at a time written as HH:MM",
    inputs="'14:30'; '00:00'; '23:59'; '7:05'",
)
def to_minutes(time: str) -> int:
    hours, minutes = time.split(":")
    return int(hours) * 60 + int(minutes)


@reference(
    "to_24_hours convert_time military_time",
    "convert a 12-hour time such as '3:05 PM' to 24-hour form",
    "turn a time with AM or PM into HH:MM",
    inputs="'3:05 PM'; '12:00 AM'; '12:30 PM'; '11:59 AM'",
)
def to_24h(time: str) -> str:
    clock, half = time.split()
    hours, minutes = clock.split(":")
    return f"{int(hours) % 12 + (12 if half == 'PM' else 0):02}:{minutes}"


@reference(
    "age_on years_old compute_age",
    "return how old a person born on one ISO date is on another",
    "compute an age in full years from a birthday and a later date, both YYYY-MM-DD",
    inputs="'2000-06-15', '2024-06-14'; '2000-06-15', '2024-06-15'; '1990-01-01', '1990-12-31'",
)
def age(birthday: str, today: str) -> int:
    born, now = date.fromisoformat(birthday), date.fromisoformat(today)
    return now.year - born.year - ((now.month, now.day) < (born.month, born.day))


@reference(
    "valid_date check_date date_exists",
    "check whether a string of the form YYYY-MM-DD is a date that exists",
    "tell whether there is such a day in the calendar",
    inputs="'2024-02-29'; '2023-02-29'; '2023-13-01'; '1999-12-31'",
)
def is_valid_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


@reference(
    "quarter_of fiscal_quarter get_quarter",
    "return the quarter, 1 to 4, in which a month lies",
    "map a month number to the number of its quarter",
    inputs="1; 6; 7; 12",
)
def quarter(month: int) -> int:
    return (month - 1) // 3 + 1


@reference(
    "clock_angle hands_angle angle_of_hands",
    "return the smaller angle in degrees between the hands of a clock at a given time",
    "compute the angle between hour hand and minute hand",
    inputs="3, 0; 12, 0; 6, 30; 9, 15",
)
def angle_between_hands(hours: int, minutes: int) -> float:
    angle = abs((hours % 12) * 30 + minutes / 2 - minutes * 6)
    return min(angle, 360 - angle)


@reference(
    "day_number ordinal_day day_in_year",
    "return the number of a date within its year, where 1 January is 1",
    "compute which day of the year an ISO date is",
    inputs="'2024-12-31'; '2023-03-01'; '2020-01-01'",
)
def day_of_year(day: str) -> int:
    return date.fromisoformat(day).timetuple().tm_yday


@reference(
    "weekend_days count_weekend_days saturdays_and_sundays",
    "count the Saturdays and Sundays from one ISO date to another, both included",
    "return how many weekend days a period has",
    inputs="'2024-06-01', '2024-06-09'; '2024-06-03', '2024-06-07'; '2024-06-08', '2024-06-08'",
)
def weekends_in(start: str, end: str) -> int:
    first, last = date.fromisoformat(start), date.fromisoformat(end)
    days = (first + timedelta(days=i) for i in range((last - first).days + 1))
    return sum(day.weekday() >= 5 for day in days)


@reference(
    "total_time sum_durations add_times",
    "add up durations written as 'MM:SS' and return the sum in the same form",
    "compute the total playing time of a list of tracks given as minutes and seconds",
    inputs="['03:30', '04:45']; []; ['59:59', '00:01']",
)
def total_duration(times: list[str]) -> str:
    seconds = sum(int(time[:-3]) * 60 + int(time[-2:]) for time in times)
    return f"{seconds // 60:02}:{seconds % 60:02}"


@reference(
    "shift_time add_minutes time_later",
    "return the time n minutes after a time of day, both as HH:MM, going on after midnight",
    "add minutes to a 24-hour time",
    inputs="'23:50', 20; '08:00', 0; '12:34', 90",
)
def later(time: str, n: int) -> str:
    minutes = (int(time[:2]) * 60 + int(time[3:]) + n) % (24 * 60)
    return f"{minutes // 60:02}:{minutes % 60:02}"
