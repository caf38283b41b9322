//! Schedules in five fields of cron: minute, hour, day of the month, month, day of the week. They are
//! read as Argo CD reads those of sync windows.
//!
//! Source: `github.com/robfig/cron/v3`, `NewParser(Minute | Hour | Dom | Month | Dow)`.

use chrono::{Datelike as _, NaiveDate, NaiveDateTime, TimeDelta, Timelike as _};

use tollgate_core::diagnostic::one_line;

/// Most bytes of a part that an error repeats.
const SHOWN_BYTES: usize = 32;
/// Most years from one opening to the next: a leap day, around a century that has none.
const MAX_YEARS: i32 = 8;

const MINUTES: Field = Field {
    name: "minute",
    min: 0,
    max: 59,
    words: &[],
};
const HOURS: Field = Field {
    name: "hour",
    min: 0,
    max: 23,
    words: &[],
};
const DAYS: Field = Field {
    name: "day of the month",
    min: 1,
    max: 31,
    words: &[],
};
const MONTHS: Field = Field {
    name: "month",
    min: 1,
    max: 12,
    words: &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
};
const WEEKDAYS: Field = Field {
    name: "day of the week",
    min: 0,
    max: 6,
    words: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

/// Why a text is no schedule that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// It does not have five fields.
    #[error("it has {0} fields, five are needed: minute, hour, day of the month, month, day of the week")]
    Fields(usize),
    /// Argo CD's library reads these prefixes, which Argo CD does not document.
    #[error("`TZ=` and `CRON_TZ=` are not supported; set `timeZone`")]
    TimeZone,
    /// A part of a field cannot be read.
    #[error("`{part}` is no {field}: numbers from {min} to {max}, ranges, steps and `*` are possible")]
    Part {
        /// The part, between commas.
        part: String,
        field: &'static str,
        min: u32,
        max: u32,
    },
    /// No time matches, such as 30 February.
    #[error("no time matches it")]
    Never,
}

/// Times at which a sync window opens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    days_match: DaysMatch,
}

/// How the day of the month and that of the week go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DaysMatch {
    /// One of the two is `*`: the other one decides.
    Both,
    /// Both are restricted: a day needs to match only one of them.
    Either,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    /// Words for numbers from `min` on.
    words: &'static [&'static str],
}

/// The numbers that a field matches, as bits.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    bits: u64,
    /// Whether some part of the field is `*` without a step.
    is_star: bool,
}

impl Schedule {
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
            return Err(Error::TimeZone);
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = *fields.as_slice() else {
            return Err(Error::Fields(fields.len()));
        };
        let (days, weekdays) = (DAYS.parse(days)?, WEEKDAYS.parse(weekdays)?);
        let schedule = Self {
            minutes: MINUTES.parse(minutes)?.bits,
            hours: HOURS.parse(hours)?.bits,
            days: days.bits,
            months: MONTHS.parse(months)?.bits,
            weekdays: weekdays.bits,
            days_match: match days.is_star || weekdays.is_star {
                true => DaysMatch::Both,
                false => DaysMatch::Either,
            },
        };
        // Where this search starts makes no difference.
        match schedule.next(NaiveDateTime::default()) {
            Some(_) => Ok(schedule),
            None => Err(Error::Never),
        }
    }

    /// The first time after `after` that matches. `None` only at the end of the calendar.
    pub(super) fn next(&self, after: NaiveDateTime) -> Option<NaiveDateTime> {
        let minute = after.date().and_hms_opt(after.hour(), after.minute(), 0)?;
        let start = minute.checked_add_signed(TimeDelta::minutes(1))?;
        let last_year = start.year().checked_add(MAX_YEARS)?;
        let (mut day, mut hour, mut minute) = (start.date(), start.hour(), start.minute());
        while day.year() <= last_year {
            let next_day = match has(self.months, day.month()) {
                false => day.with_day(1)?.checked_add_months(chrono::Months::new(1))?,
                true if self.matches_day(day) => match self.next_in_day(hour, minute) {
                    Some((hour, minute)) => return day.and_hms_opt(hour, minute, 0),
                    None => day.succ_opt()?,
                },
                true => day.succ_opt()?,
            };
            (day, hour, minute) = (next_day, 0, 0);
        }
        None
    }

    fn matches_day(&self, day: NaiveDate) -> bool {
        let of_month = has(self.days, day.day());
        let of_week = has(self.weekdays, day.weekday().num_days_from_sunday());
        match self.days_match {
            DaysMatch::Both => of_month && of_week,
            DaysMatch::Either => of_month || of_week,
        }
    }

    /// The first hour and minute of a day that match, from these on.
    fn next_in_day(&self, hour: u32, minute: u32) -> Option<(u32, u32)> {
        if has(self.hours, hour)
            && let Some(minute) = first(self.minutes, minute)
        {
            return Some((hour, minute));
        }
        Some((first(self.hours, hour + 1)?, first(self.minutes, 0)?))
    }
}

fn has(bits: u64, number: u32) -> bool {
    bits.checked_shr(number).is_some_and(|bits| bits & 1 == 1)
}

/// The first number in `bits`, from `from` on.
fn first(bits: u64, from: u32) -> Option<u32> {
    let rest = bits.checked_shr(from).filter(|rest| *rest != 0)?;
    Some(from + rest.trailing_zeros())
}

impl Field {
    fn parse(self, text: &str) -> Result<Numbers, Error> {
        let mut all = Numbers::default();
        // Argo CD ignores an empty part too.
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let numbers = self.parse_part(part).ok_or_else(|| Error::Part {
                part: one_line(part, SHOWN_BYTES),
                field: self.name,
                min: self.min,
                max: self.max,
            })?;
            all.bits |= numbers.bits;
            all.is_star |= numbers.is_star;
        }
        Ok(all)
    }

    /// Reads `*`, `N`, `N-M`, and each of them with `/STEP`. `N/STEP` is `N-max/STEP`.
    fn parse_part(self, part: &str) -> Option<Numbers> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step.parse::<i64>().ok().filter(|step| *step > 0)?)),
            None => (part, None),
        };
        let (low, high) = match range.split_once('-') {
            Some((low, high)) => (low, Some(high)),
            None => (range, None),
        };
        let is_star = matches!(low, "*" | "?");
        let (min, max) = (i64::from(self.min), i64::from(self.max));
        let (start, end) = match (is_star, high) {
            // As in Argo CD, anything after `*-` has no meaning.
            (true, _) => (min, max),
            (false, Some(high)) => (self.number(low)?, self.number(high)?),
            (false, None) => {
                let start = self.number(low)?;
                (start, if step.is_some() { max } else { start })
            }
        };
        if start < min || end > max || start > end {
            return None;
        }
        let step = step.unwrap_or(1);
        let numbers = (start..=end).step_by(usize::try_from(step).ok()?);
        Some(Numbers {
            bits: numbers.fold(0, |bits, number| bits | 1 << number),
            is_star: is_star && step == 1,
        })
    }

    fn number(self, text: &str) -> Option<i64> {
        let mut words = (i64::from(self.min)..).zip(self.words);
        match words.find(|(_, word)| word.eq_ignore_ascii_case(text)) {
            Some((number, _)) => Some(number),
            None => text.parse().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> NaiveDateTime {
        NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f").unwrap()
    }

    #[test]
    fn the_next_time_is_the_first_one_after() {
        for (schedule, after, next) in [
            ("* * * * *", "2026-11-27 12:00:00", "2026-11-27 12:01:00"),
            ("* * * * *", "2026-11-27 11:59:59.9", "2026-11-27 12:00:00"),
            ("* * * * *", "2026-12-31 23:59:00", "2027-01-01 00:00:00"),
            ("0 22 * * *", "2026-11-27 21:59:59", "2026-11-27 22:00:00"),
            ("0 22 * * *", "2026-11-27 22:00:00", "2026-11-28 22:00:00"),
            ("30 1,13 * * *", "2026-11-27 01:30:00", "2026-11-27 13:30:00"),
            ("0 0 29 2 *", "2025-01-01 00:00:00", "2028-02-29 00:00:00"),
            ("0 0 29 2 *", "2096-03-01 00:00:00", "2104-02-29 00:00:00"),
            ("0 0 * * MON-fri", "2026-11-27 00:00:00", "2026-11-30 00:00:00"),
            ("0 0 * Feb *", "2026-11-27 00:00:00", "2027-02-01 00:00:00"),
            // Both days are restricted, so one of them is enough.
            ("0 0 13 * 5", "2026-11-27 00:00:00", "2026-12-04 00:00:00"),
            ("0 0 13 * *", "2026-11-27 00:00:00", "2026-12-13 00:00:00"),
            // A step makes a restriction of `*`.
            ("0 0 */2 * 1", "2026-11-27 00:00:00", "2026-11-29 00:00:00"),
            ("0 0 */1 * 1", "2026-11-27 00:00:00", "2026-11-30 00:00:00"),
            ("0 0 ? * 1", "2026-11-27 00:00:00", "2026-11-30 00:00:00"),
            ("0 20/2 * * *", "2026-11-27 20:00:00", "2026-11-27 22:00:00"),
            ("0 1-5/2 * * *", "2026-11-27 03:00:00", "2026-11-27 05:00:00"),
            ("*-x/30 , * * 0", "", ""),
        ] {
            let parsed = Schedule::parse(schedule);
            if after.is_empty() {
                assert_eq!(parsed.map(drop), Err(Error::Never), "{schedule}");
                continue;
            }
            assert_eq!(parsed.unwrap().next(at(after)), Some(at(next)), "{schedule} {after}");
        }
    }

    #[test]
    fn schedules_that_cannot_be_read_are_refused() {
        for (schedule, error) in [
            ("", "it has 0 fields"),
            ("* * * *", "it has 4 fields"),
            ("0 * * * * *", "it has 6 fields"),
            ("@daily", "it has 1 fields"),
            ("CRON_TZ=UTC 0 0 * * *", "`timeZone`"),
            ("TZ=UTC", "`timeZone`"),
            ("60 * * * *", "`60` is no minute: numbers from 0 to 59"),
            ("* 24 * * *", "`24` is no hour"),
            ("* * 0 * *", "`0` is no day of the month: numbers from 1 to 31"),
            ("* * * 13 *", "`13` is no month"),
            ("* * * * 7", "`7` is no day of the week: numbers from 0 to 6"),
            ("5-1 * * * *", "`5-1` is no minute"),
            ("1-2-3 * * * *", "`1-2-3` is no minute"),
            ("*/0 * * * *", "`*/0` is no minute"),
            ("*/2/2 * * * *", "`*/2/2` is no minute"),
            ("-1 * * * *", "`-1` is no minute"),
            ("mon * * * *", "`mon` is no minute"),
            ("* * L * *", "`L` is no day of the month"),
            ("0 0 30 2 *", "no time matches it"),
            ("0 0 31 4,6,9,11 *", "no time matches it"),
        ] {
            let found = Schedule::parse(schedule).unwrap_err().to_string();
            assert!(found.contains(error), "{schedule}: {found}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_matching_minute_is_left_out(
            minute in "(\\*|[0-5]?[0-9])(/[1-9])?", hour in "(\\*|1?[0-9])(/[1-9])?",
            day in "(\\*|1?[1-9])(/[1-9])?", month in "(\\*|[1-9])(/[1-9])?", weekday in "(\\*|[0-6])(/[1-9])?",
            offset in 0..3_000_000_i64,
        ) {
            let schedule = Schedule::parse(&format!("{minute} {hour} {day} {month} {weekday}")).unwrap();
            let after = at("2026-01-01 00:00:00") + TimeDelta::seconds(offset * 60);
            let next = schedule.next(after).unwrap();
            proptest::prop_assert!(next > after);
            let matches = |time: NaiveDateTime| {
                has(schedule.months, time.month()) && schedule.matches_day(time.date())
                    && has(schedule.hours, time.hour()) && has(schedule.minutes, time.minute())
            };
            proptest::prop_assert!(matches(next));
            let mut between = after + TimeDelta::minutes(1);
            while between < next && between < after + TimeDelta::days(3) {
                proptest::prop_assert!(!matches(between), "{}", between);
                between += TimeDelta::minutes(1);
            }
        }
    }
}
