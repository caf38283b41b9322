//! Numbers as inline SVG. Positions are attributes, because pages allow no inline styles; beside each
//! picture the same numbers are in a table.

use jiff::{SignedDuration, Timestamp};

use crate::text::microseconds;

/// How many bars a history has, and how long each is.
const BARS: usize = 30;
const BAR: SignedDuration = SignedDuration::from_mins(2);
/// The size of a bar and its distance from the next, in units of the drawing.
const STEP: usize = 20;
const HEIGHT: usize = 100;

/// Requests and refusals of the last hour.
#[derive(Clone, Debug)]
pub(crate) struct History {
    bars: Vec<Bar>,
}

/// The requests of two minutes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    start: Timestamp,
    pub(crate) allowed: usize,
    pub(crate) refused: usize,
    /// Left side, and the heights of both parts, in units of the drawing.
    pub(crate) x: usize,
    pub(crate) allowed_height: usize,
    pub(crate) refused_height: usize,
}

impl History {
    /// - `points`: when each request was, and whether it was refused.
    pub(crate) fn new(points: impl Iterator<Item = (Timestamp, bool)>, now: Timestamp) -> Self {
        let mut counts = [(0_usize, 0_usize); BARS];
        for (at, is_refused) in points {
            // Requests of a replica whose clock is ahead are in the future, and count as the latest.
            let age = now.duration_since(at).as_secs().max(0) / BAR.as_secs().max(1);
            let Ok(age) = usize::try_from(age) else { continue };
            let Some(count) = BARS
                .checked_sub(age.saturating_add(1))
                .and_then(|at| counts.get_mut(at))
            else {
                continue;
            };
            match is_refused {
                true => count.1 = count.1.saturating_add(1),
                false => count.0 = count.0.saturating_add(1),
            }
        }
        let most = counts
            .iter()
            .map(|(allowed, refused)| allowed.saturating_add(*refused))
            .max();
        let most = most.unwrap_or_default().max(1);
        let height = |count: usize| match count {
            0 => 0,
            // At least visible.
            count => (count.saturating_mul(HEIGHT) / most).max(3),
        };
        let bars = counts.iter().enumerate().map(|(index, (allowed, refused))| {
            let bars_ago = i64::try_from(BARS.saturating_sub(index)).unwrap_or_default();
            let distance = SignedDuration::from_secs(BAR.as_secs().saturating_mul(bars_ago));
            Bar {
                start: now.checked_sub(distance).unwrap_or(now),
                allowed: *allowed,
                refused: *refused,
                x: index.saturating_mul(STEP),
                allowed_height: height(*allowed),
                refused_height: height(*refused),
            }
        });
        Self { bars: bars.collect() }
    }

    pub(crate) fn bars(&self) -> &[Bar] {
        &self.bars
    }

    /// Those with a request, for the table.
    pub(crate) fn filled(&self) -> impl Iterator<Item = &Bar> {
        self.bars.iter().filter(|bar| bar.allowed > 0 || bar.refused > 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.filled().next().is_none()
    }
}

impl Bar {
    pub(crate) fn label(&self) -> String {
        self.start.strftime("%H:%M UTC").to_string()
    }

    /// The upper edge of what was allowed.
    pub(crate) fn allowed_y(&self) -> usize {
        HEIGHT.saturating_sub(self.allowed_height)
    }

    /// The upper edge of what was refused, which stands on what was allowed.
    pub(crate) fn refused_y(&self) -> usize {
        self.allowed_y().saturating_sub(self.refused_height)
    }
}

/// The stages of one request, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Stages {
    stages: Vec<Stage>,
}

#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    /// Where it begins and how long it is, in thousandths of the whole.
    pub(crate) x: u64,
    pub(crate) width: u64,
    /// Upper edge of its row.
    pub(crate) y: usize,
}

impl Stages {
    /// - `stages`: name and microseconds of each.
    pub(crate) fn new(stages: &[(&'static str, u64)]) -> Self {
        let total = stages.iter().map(|(_, time)| time).sum::<u64>().max(1);
        let mut before = 0_u64;
        let stages = stages.iter().enumerate().map(|(index, (name, time))| {
            let x = before.saturating_mul(1_000) / total;
            before = before.saturating_add(*time);
            Stage {
                name,
                text: microseconds(*time),
                // Leaves room for the least width, so that no bar is outside of the drawing.
                x: x.min(996),
                width: (time.saturating_mul(1_000) / total).max(4),
                y: index.saturating_mul(STEP),
            }
        });
        Self {
            stages: stages.collect(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stage> {
        self.stages.iter()
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::{History, Stages};

    #[test]
    fn a_history_has_an_hour_in_it() {
        let now: Timestamp = "2026-11-28T12:00:00Z".parse().unwrap();
        let ago = |seconds: i64| now.checked_sub(SignedDuration::from_secs(seconds)).unwrap();
        // The last one is too old; the first is of a clock that is ahead.
        let points = [
            (ago(-5), true),
            (ago(0), false),
            (ago(119), false),
            (ago(130), true),
            (ago(3_601), false),
        ];
        let history = History::new(points.into_iter(), now);
        let counts: Vec<_> = history.filled().map(|bar| (bar.allowed, bar.refused, bar.x)).collect();
        assert_eq!(counts, [(0, 1, 560), (2, 1, 580)]);
        let last = history.bars().last().unwrap();
        assert_eq!(
            (last.allowed_height, last.refused_height, last.refused_y()),
            (66, 33, 1)
        );
        assert!(History::new(std::iter::empty(), now).is_empty());
    }

    #[test]
    fn stages_follow_each_other() {
        let stages = Stages::new(&[("A", 250), ("B", 0), ("C", 750)]);
        let drawn: Vec<_> = stages
            .iter()
            .map(|stage| (stage.x, stage.width, stage.text.clone()))
            .collect();
        assert_eq!(
            drawn,
            [
                (0, 250, "250 µs".to_owned()),
                (250, 4, "0 µs".to_owned()),
                (250, 750, "750 µs".to_owned())
            ]
        );
    }
}
