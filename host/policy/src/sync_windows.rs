//! Decides whether the sync windows of an Application's project permit changes at a given time. A
//! change that a caller makes counts as a manual sync.
//!
//! A window is open for its duration from each time of its schedule on. The schedule's times are wall
//! time in the window's zone. As in Argo CD, the zone's offset is the one at the time of the question,
//! also for openings before it.
//!
//! Security: a window that cannot be read closes every Application that it might apply to.
//!
//! Source: Argo CD, `SyncWindows.Matches` and `SyncWindows.CanSync`.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use chrono::{DateTime, NaiveDateTime, TimeDelta, TimeZone as _, Utc};
use chrono_tz::Tz;

use tollgate_config::duration;
use tollgate_core::diagnostic::{Diagnostic, one_line};
use tollgate_core::glob::{self, Pattern};
use tollgate_objects::{Application, SyncWindow};

mod schedule;
#[cfg(test)]
mod tests;

use schedule::Schedule;

/// Most bytes of each text of a window that a refusal repeats.
const SHOWN_BYTES: usize = 64;
/// Most bytes of what is wrong with a window that a refusal has.
const MISTAKE_BYTES: usize = 256;
/// Most openings that are followed to find when a window closes.
const MAX_JOINED_OPENINGS: usize = 2_000;

/// The sync windows of a project, compiled.
#[derive(Debug, Default)]
pub struct SyncWindows(Vec<Arc<CompiledWindow>>);

/// The sync windows that apply to one Application.
#[derive(Clone, Debug, Default)]
pub struct ApplicableWindows(Vec<Arc<CompiledWindow>>);

/// Why sync windows do not permit a change. The text is for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// A window of kind `deny` is open and does not let manual syncs pass.
    #[error("sync window {window} denies changes{until}")]
    Denied {
        /// The window, as a text.
        window: String,
        /// ` until …`, or empty if that is too far away to tell.
        until: String,
    },
    /// Only windows of kind `allow` permit changes, and none is open.
    #[error("changes are only permitted in sync windows{next}")]
    NotOpen {
        /// `; the next one is …, from …`, or empty if none opens any more.
        next: String,
    },
    /// A window cannot be read.
    #[error("sync window {window} cannot be used: {mistake}")]
    Mistake {
        /// The window, as a text.
        window: String,
        /// What is wrong with it.
        mistake: String,
    },
}

/// Why a sync window cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Mistake {
    #[error("`kind` is neither `allow` nor `deny`")]
    Kind,
    #[error("`schedule`: {0}")]
    Schedule(schedule::Error),
    #[error("`duration`: {0}")]
    Duration(duration::Error),
    #[error("`duration` is zero, so it would never be open")]
    NoDuration,
    #[error("`timeZone` is no time zone such as `Europe/Berlin`")]
    TimeZone,
    #[error("`{list}`: an entry is not a pattern: {error}")]
    Pattern { list: &'static str, error: glob::Error },
}

#[derive(Debug)]
struct CompiledWindow {
    written: SyncWindow,
    /// With a mistake, the window applies to every Application.
    compiled: Result<(Scope, OpenTimes), Mistake>,
}

/// The Applications that a window applies to.
#[derive(Debug)]
struct Scope {
    applications: Vec<Pattern>,
    clusters: Vec<Pattern>,
    namespaces: Vec<Pattern>,
    lists: Lists,
}

/// Which of a window's lists an Application has to match, of those that have entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lists {
    Any,
    All,
}

/// When a window is open, and what it does then.
#[derive(Clone, Copy, Debug)]
struct OpenTimes {
    kind: WindowKind,
    schedule: Schedule,
    duration: TimeDelta,
    zone: Tz,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowKind {
    Allow,
    Deny,
}

impl SyncWindows {
    /// Compiles the windows of a project, merged with those of its global projects.
    pub fn compile(windows: &[SyncWindow]) -> Self {
        let compile = |written: &SyncWindow| {
            Arc::new(CompiledWindow {
                compiled: Scope::compile(written).and_then(|scope| Ok((scope, OpenTimes::compile(written)?))),
                written: written.clone(),
            })
        };
        Self(windows.iter().map(compile).collect())
    }

    /// Warnings about the first `own` windows, the project's own.
    pub fn findings(&self, own: usize) -> Vec<Diagnostic> {
        let windows = self.0.iter().take(own).enumerate();
        let finding = |(at, window): (usize, &Arc<CompiledWindow>)| {
            let mistake = window.compiled.as_ref().err()?;
            let message = format!("`syncWindows[{at}]` cannot be used: {mistake}");
            let hint = "nobody changes Applications of the project through the gateway until it is corrected";
            Some(Diagnostic::warning(window.written.location.clone(), message).with_hint(hint))
        };
        windows.filter_map(finding).collect()
    }

    /// The windows that apply to an Application of the project.
    pub fn applicable_to(&self, application: &Application) -> ApplicableWindows {
        let applies = |window: &&Arc<CompiledWindow>| match &window.compiled {
            Ok((scope, _)) => scope.matches(application),
            Err(_) => true,
        };
        ApplicableWindows(self.0.iter().filter(applies).cloned().collect())
    }
}

impl ApplicableWindows {
    /// Whether the windows permit a manual sync at a time.
    ///
    /// # Errors
    /// [`Closed`] if they do not, or if one of them cannot be read.
    pub fn check_manual_sync(&self, now: SystemTime) -> Result<(), Closed> {
        let now = DateTime::<Utc>::from(now);
        let mut windows = Vec::with_capacity(self.0.len());
        for window in &self.0 {
            match &window.compiled {
                Ok((_, times)) => windows.push((window, times, times.is_open(now))),
                Err(mistake) => {
                    return Err(Closed::Mistake {
                        window: window.to_string(),
                        mistake: one_line(&mistake.to_string(), MISTAKE_BYTES),
                    });
                }
            }
        }
        let of_kind = |kind| windows.iter().filter(move |(_, times, _)| times.kind == kind);
        let mut denying = of_kind(WindowKind::Deny).filter(|(_, _, is_open)| *is_open).peekable();
        if denying.peek().is_some() {
            // A manual sync passes only if every one of them lets it pass.
            // As in Argo CD, windows of kind `allow` do not count then.
            return match denying.find(|(window, _, _)| !window.written.manual_sync) {
                None => Ok(()),
                Some((window, times, _)) => Err(Closed::Denied {
                    window: window.to_string(),
                    until: times
                        .closes_at(now)
                        .map_or_else(String::new, |at| format!(" until {at} {}", times.zone)),
                }),
            };
        }
        let mut allowing = of_kind(WindowKind::Allow);
        // Where no window is of kind `allow`, `all` holds, and nothing but an open deny refuses.
        let is_permitted = allowing.clone().any(|(_, _, is_open)| *is_open)
            || allowing.all(|(window, _, _)| window.written.manual_sync);
        if is_permitted {
            return Ok(());
        }
        let opening = of_kind(WindowKind::Allow)
            .filter_map(|(window, times, _)| Some((times.opens_at(now)?, window, times)))
            .min_by_key(|(local, _, times)| times.instant(*local, now));
        let next = opening.map_or_else(String::new, |(local, window, times)| {
            format!("; the next one is {window}, from {local} {}", times.zone)
        });
        Err(Closed::NotOpen { next })
    }
}

impl fmt::Display for CompiledWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &str| one_line(text, SHOWN_BYTES);
        let SyncWindow {
            kind,
            schedule,
            duration,
            time_zone,
            ..
        } = &self.written;
        let time_zone = if time_zone.is_empty() { "UTC" } else { time_zone };
        write!(
            f,
            "`{} {}` for `{}` in `{}`",
            shown(kind),
            shown(schedule),
            shown(duration),
            shown(time_zone)
        )
    }
}

impl Scope {
    fn compile(written: &SyncWindow) -> Result<Self, Mistake> {
        let compile = |list: &'static str, patterns: &[String]| {
            let compile = |pattern: &String| Pattern::compile(pattern, &[]);
            let compiled: Result<Vec<Pattern>, glob::Error> = patterns.iter().map(compile).collect();
            compiled.map_err(|error| Mistake::Pattern { list, error })
        };
        Ok(Self {
            applications: compile("applications", &written.applications)?,
            clusters: compile("clusters", &written.clusters)?,
            namespaces: compile("namespaces", &written.namespaces)?,
            lists: match written.use_and_operator {
                true => Lists::All,
                false => Lists::Any,
            },
        })
    }

    fn matches(&self, application: &Application) -> bool {
        let destination = &application.destination;
        let any = |patterns: &[Pattern], texts: &[&String]| {
            let matches = |pattern: &Pattern| texts.iter().any(|text| pattern.matches(text));
            patterns.iter().any(matches)
        };
        // An Application names its cluster in one of two ways.
        let cluster = [&destination.name, &destination.server].map(|text| (!text.is_empty()).then_some(text));
        let cluster: Vec<&String> = cluster.into_iter().flatten().collect();
        let (name, namespace) = ([&application.name.name], [&destination.namespace]);
        let lists = [
            (&self.applications, name.as_slice()),
            (&self.clusters, &cluster),
            (&self.namespaces, &namespace),
        ];
        let mut matched = lists
            .into_iter()
            .filter(|(patterns, _)| !patterns.is_empty())
            .map(|(patterns, texts)| any(patterns, texts))
            .peekable();
        match self.lists {
            Lists::Any => matched.any(|matches| matches),
            // A window without any list applies to nothing.
            Lists::All => matched.peek().is_some() && matched.all(|matches| matches),
        }
    }
}

impl OpenTimes {
    fn compile(written: &SyncWindow) -> Result<Self, Mistake> {
        let duration = duration::parse(&written.duration).map_err(Mistake::Duration)?;
        // A duration has at most `i64::MAX` nanoseconds.
        let duration = TimeDelta::from_std(duration).map_err(|_| Mistake::Duration(duration::Error::TooLong))?;
        if duration.is_zero() {
            return Err(Mistake::NoDuration);
        }
        Ok(Self {
            kind: match written.kind.as_str() {
                "allow" => WindowKind::Allow,
                "deny" => WindowKind::Deny,
                _ => return Err(Mistake::Kind),
            },
            schedule: Schedule::parse(&written.schedule).map_err(Mistake::Schedule)?,
            duration,
            zone: match written.time_zone.as_str() {
                "" => Tz::UTC,
                name => name.parse().map_err(|_| Mistake::TimeZone)?,
            },
        })
    }

    fn local(&self, now: DateTime<Utc>) -> NaiveDateTime {
        now.with_timezone(&self.zone).naive_local()
    }

    /// The first opening that is not over by now.
    fn opens_at(&self, now: DateTime<Utc>) -> Option<NaiveDateTime> {
        self.schedule.next(self.local(now).checked_sub_signed(self.duration)?)
    }

    fn is_open(&self, now: DateTime<Utc>) -> bool {
        // As in Argo CD, a window is not open yet at the very instant of its opening.
        self.opens_at(now).is_some_and(|opening| opening < self.local(now))
    }

    /// When a window that is open closes. `None` if that is too many openings away.
    fn closes_at(&self, now: DateTime<Utc>) -> Option<NaiveDateTime> {
        let mut opening = self.opens_at(now)?;
        for _ in 0..MAX_JOINED_OPENINGS {
            let end = opening.checked_add_signed(self.duration)?;
            match self.schedule.next(opening) {
                Some(next) if next <= end => opening = next,
                Some(_) | None => return Some(end),
            }
        }
        None
    }

    /// The instant of a wall time in the window's zone, to compare it with others. A wall time that
    /// the zone skips gets the offset of now.
    fn instant(&self, local: NaiveDateTime, now: DateTime<Utc>) -> DateTime<Utc> {
        let found = self.zone.from_local_datetime(&local).earliest();
        let skipped = || now + local.signed_duration_since(self.local(now));
        found.map_or_else(skipped, |found| found.with_timezone(&Utc))
    }
}
