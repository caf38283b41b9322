//! Texts, times and numbers from outside, as pages show them.

use std::fmt::{self, Display, Write as _};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer};

/// Longest text shown, in characters. What is longer loses its middle.
const SHOWN: usize = 400;

/// A text from outside.
///
/// Control characters and those that change the direction of writing are shown as escapes, so that
/// no name can hide or reorder what stands beside it. The templates escape it for HTML.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text(String);

impl Text {
    /// As it came, for values of forms and for paths.
    pub(crate) fn raw(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Percent-encoded as one segment of a path or one value of a query.
    pub(crate) fn encoded(&self) -> String {
        encode(&self.0)
    }
}

/// Percent-encodes everything but letters, digits, `-`, `_`, `.` and `~`.
pub(crate) fn encode(text: &str) -> String {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
    const ALL_BUT_UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(text, ALL_BUT_UNRESERVED).to_string()
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

impl Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.chars().count();
        if count <= SHOWN {
            return self.0.chars().try_for_each(|c| show(c, f));
        }
        let kept = SHOWN / 2;
        self.0.chars().take(kept).try_for_each(|c| show(c, f))?;
        f.write_str(" … ")?;
        let tail = self.0.chars().skip(count.saturating_sub(kept));
        tail.into_iter().try_for_each(|c| show(c, f))
    }
}

fn show(c: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match c {
        '\n' | '\t' => f.write_char(c),
        c if is_hidden(c) => write!(f, "\\u{{{:x}}}", u32::from(c)),
        c => f.write_char(c),
    }
}

/// Whether a character is invisible: a control character, one that reorders others (Unicode Standard
/// Annex #9), or one that separates nothing visibly.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A moment, shown as its distance from now, with the whole moment as its tooltip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    at: Timestamp,
    now: Timestamp,
}

/// It renders an element, which has only digits and fixed words in it.
impl askama::filters::HtmlSafe for Time {}

impl Time {
    pub(crate) fn new(at: Timestamp, now: Timestamp) -> Self {
        Self { at, now }
    }

    /// The whole moment, in UTC.
    pub(crate) fn exact(&self) -> String {
        self.at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
    }

    /// Its distance from now, such as `45 s ago` or `in 8 h`.
    pub(crate) fn distance(&self) -> String {
        let distance = self.at.duration_since(self.now);
        let (amount, unit) = rough(distance.abs());
        match (distance.is_negative(), amount) {
            (_, 0) => "now".to_owned(),
            (true, _) => format!("{amount} {unit} ago"),
            (false, _) => format!("in {amount} {unit}"),
        }
    }
}

impl Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (machine, exact, distance) = (self.at, self.exact(), self.distance());
        write!(f, "<time datetime=\"{machine}\" title=\"{exact}\">{distance}</time>")
    }
}

fn rough(distance: SignedDuration) -> (i64, &'static str) {
    let seconds = distance.as_secs();
    match seconds {
        ..2 => (0, "s"),
        2..120 => (seconds, "s"),
        120..7_200 => (seconds / 60, "min"),
        7_200..172_800 => (seconds / 3_600, "h"),
        172_800.. => (seconds / 86_400, "days"),
    }
}

/// Microseconds, as people read them.
pub(crate) fn microseconds(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} µs"),
        1_000..10_000 => format!("{}.{} ms", count / 1_000, count % 1_000 / 100),
        10_000..10_000_000 => format!("{} ms", count / 1_000),
        10_000_000.. => format!("{} s", count / 1_000_000),
    }
}

/// A number in groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len().saturating_add(digits.len() / 3));
    for (index, digit) in digits.chars().enumerate() {
        let rest = digits.len().saturating_sub(index);
        if index > 0 && rest.is_multiple_of(3) {
            // A narrow no-break space.
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{Text, Time, encode, grouped, microseconds};

    #[test]
    fn hostile_texts_are_shown_as_they_are() {
        for (text, shown) in [
            ("alice", "alice"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("nul\0", "nul\\u{0}"),
            ("zero\u{200b}width\u{feff}", "zero\\u{200b}width\\u{feff}"),
            ("Ωμέγα 東京 🚀", "Ωμέγα 東京 🚀"),
        ] {
            assert_eq!(Text::from(text).to_string(), shown);
        }
        let long = Text::from("x".repeat(10_000)).to_string();
        assert!(long.chars().count() < 410 && long.contains(" … "), "{}", long.len());
    }

    #[test]
    fn paths_have_one_segment() {
        assert_eq!(encode("../a b/ü?#%"), "..%2Fa%20b%2F%C3%BC%3F%23%25");
    }

    #[test]
    fn times_and_numbers_are_short() {
        let now: Timestamp = "2026-11-28T12:00:00Z".parse().unwrap();
        for (at, text) in [
            ("2026-11-28T11:59:59Z", "now"),
            ("2026-11-28T11:59:15Z", "45 s ago"),
            ("2026-11-28T11:00:00Z", "60 min ago"),
            ("2026-11-28T20:00:00Z", "in 8 h"),
            ("2026-11-20T12:00:00Z", "8 days ago"),
        ] {
            assert_eq!(Time::new(at.parse().unwrap(), now).distance(), text);
        }
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!((grouped(12), grouped(123)), ("12".to_owned(), "123".to_owned()));
        assert_eq!(microseconds(90), "90 µs");
        assert_eq!(microseconds(1_250), "1.2 ms");
        assert_eq!(microseconds(250_000), "250 ms");
    }
}
