//! Semantic versions (`1.2.3-rc.1`), their order, and whether one satisfies a range (`>=1.2 <2 ||
//! ^3`).
//!
//! Source: SemVer 2.0.0, section 11; ranges as the library behind Argo CD's templates reads them
//! (`Masterminds/semver` 3).

use std::cmp::Ordering;
use std::fmt;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::ExecError;
use super::exec::exec_error;

/// The parts after the numbers: a prerelease and metadata.
const TAIL: &str =
    r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+(?P<meta>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?";
/// A version with wildcards, without capture names.
const LOOSE: &str = r"v?[0-9|xX*]+(?:\.[0-9|xX*]+)?(?:\.[0-9|xX*]+)?(?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?";
const OPERATORS: &str = r"=||!=|>|<|>=|=>|<=|=<|~|~>|\^";

static VERSION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(&format!(
        r"^v?(?P<major>[0-9]+)(?:\.(?P<minor>[0-9]+))?(?:\.(?P<patch>[0-9]+))?{TAIL}$"
    ))
    .ok()
});
static RANGE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&format!(r"\s*({LOOSE})\s+-\s+({LOOSE})\s*")).ok());
static GROUP: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let one = format!(r"(?:{OPERATORS})\s*(?:{LOOSE})");
    Regex::new(&format!(r"^\s*{one}\s*(?:(?:\s+|,\s*){one}\s*)*$")).ok()
});
static ONE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(&format!(
        r"(?P<operator>{OPERATORS})\s*v?(?P<major>[0-9|xX*]+)(?:\.(?P<minor>[0-9|xX*]+))?(?:\.(?P<patch>[0-9|xX*]+))?{TAIL}"
    ))
    .ok()
});

#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) major: u64,
    pub(super) minor: u64,
    pub(super) patch: u64,
    pub(super) prerelease: String,
    pub(super) metadata: String,
    /// As it was written.
    pub(super) original: String,
}

impl fmt::Display for Version {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.prerelease.is_empty() {
            write!(to, "-{}", self.prerelease)?;
        }
        if !self.metadata.is_empty() {
            write!(to, "+{}", self.metadata)?;
        }
        Ok(())
    }
}

impl Version {
    /// Parses `1`, `1.2`, `v1.2.3-rc.1+build`.
    pub(super) fn read(text: &str) -> Result<Self, ExecError> {
        let wrong = || exec_error(format!("`{text}` is no semantic version"));
        let found = captures(&VERSION, text).ok_or_else(wrong)?;
        let number = |name: &str| match found.name(name) {
            None => Ok(0),
            Some(digits) => digits.as_str().parse::<u64>().map_err(|_| wrong()),
        };
        let prerelease = part(&found, "pre");
        let zeros =
            |part: &str| part.len() > 1 && part.starts_with('0') && part.bytes().all(|byte| byte.is_ascii_digit());
        if prerelease.split('.').any(zeros) {
            return Err(wrong());
        }
        Ok(Self {
            major: number("major")?,
            minor: number("minor")?,
            patch: number("patch")?,
            prerelease: prerelease.to_owned(),
            metadata: part(&found, "meta").to_owned(),
            original: text.to_owned(),
        })
    }

    /// Compares two versions, ignoring metadata.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let numbers = (self.major, self.minor, self.patch).cmp(&(other.major, other.minor, other.patch));
        numbers.then_with(|| order_prereleases(&self.prerelease, &other.prerelease))
    }
}

fn captures<'t>(pattern: &LazyLock<Option<Regex>>, text: &'t str) -> Option<Captures<'t>> {
    pattern.as_ref()?.captures(text)
}

fn part<'t>(found: &Captures<'t>, name: &str) -> &'t str {
    found.name(name).map_or("", |part| part.as_str())
}

/// A part of a prerelease; numbers come before other texts.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Part<'t> {
    Number(u64),
    Text(&'t str),
}

fn order_prereleases(left: &str, right: &str) -> Ordering {
    let part = |text| str::parse(text).map_or(Part::Text(text), Part::Number);
    // No prerelease comes after all of them.
    let is_last = left.is_empty().cmp(&right.is_empty());
    is_last.then_with(|| left.split('.').map(part).cmp(right.split('.').map(part)))
}

/// Which of the three numbers are wildcards (`1.x`, `1`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WildcardLevel {
    Nothing,
    Patch,
    Minor,
    All,
}

#[derive(Debug)]
struct Constraint {
    operator: String,
    bound: Version,
    wildcards: WildcardLevel,
}

pub(super) fn satisfies(range: &str, version: &str) -> Result<bool, ExecError> {
    let groups = read_range(range)?;
    let version = Version::read(version)?;
    Ok(groups.iter().any(|group| satisfies_all(group, &version)))
}

/// Whether a text is a range of versions, and not a version itself.
///
/// Source: Argo CD, `util/versions`, `IsConstraint`.
pub fn is_range(text: &str) -> bool {
    Version::read(text).is_err() && read_range(text).is_ok()
}

/// The tag with the highest version in a range; `None` if the text is a version itself or not a
/// range, or if no tag is in it.
///
/// Source: Argo CD, `util/versions`, `MaxVersion`: a tag that is not a version is ignored; one
/// that looks like a version but is invalid ends the search without a result.
pub fn highest<'t>(range: &str, tags: impl Iterator<Item = &'t str>) -> Option<&'t str> {
    if Version::read(range).is_ok() {
        return None;
    }
    let groups = read_range(range).ok()?;
    let mut highest: Option<(Version, &str)> = None;
    for tag in tags.filter(|tag| captures(&VERSION, tag).is_some()) {
        let version = Version::read(tag).ok()?;
        let is_higher = highest.as_ref().is_none_or(|(known, _)| version.order(known).is_gt());
        if is_higher && groups.iter().any(|group| satisfies_all(group, &version)) {
            highest = Some((version, tag));
        }
    }
    highest.map(|(_, tag)| tag)
}

/// Whether a version satisfies all constraints. A prerelease satisfies only ranges that name one.
fn satisfies_all(constraints: &[Constraint], version: &Version) -> bool {
    let mut bounds = constraints.iter().map(|constraint| &constraint.bound);
    (version.prerelease.is_empty() || bounds.any(|bound| !bound.prerelease.is_empty()))
        && constraints.iter().all(|constraint| constraint.is_satisfied_by(version))
}

fn read_range(range: &str) -> Result<Vec<Vec<Constraint>>, ExecError> {
    let wrong = |text: &str| exec_error(format!("improper constraint: {text}"));
    let pattern = |lock: &'static LazyLock<Option<Regex>>| lock.as_ref().ok_or_else(|| wrong(range));
    let (hyphen, group, one) = (pattern(&RANGE)?, pattern(&GROUP)?, pattern(&ONE)?);
    let range = hyphen.replace_all(range, ">= $1, <= $2 ");
    let groups = range.split("||").map(|text| match group.is_match(text) {
        true => one.captures_iter(text).map(|found| read_constraint(&found)).collect(),
        false => Err(wrong(text)),
    });
    groups.collect()
}

fn read_constraint(found: &Captures<'_>) -> Result<Constraint, ExecError> {
    let wrong = || exec_error(format!("improper constraint: {}", found.get_match().as_str()));
    let is_wildcard = |part: &str| matches!(part, "" | "x" | "X" | "*");
    let (major, minor, patch) = (part(found, "major"), part(found, "minor"), part(found, "patch"));
    let (wildcards, numbers) = if is_wildcard(major) {
        (WildcardLevel::All, "0.0.0".to_owned())
    } else if is_wildcard(minor) {
        (WildcardLevel::Minor, format!("{major}.0.0"))
    } else if is_wildcard(patch) {
        (WildcardLevel::Patch, format!("{major}.{minor}.0"))
    } else {
        (WildcardLevel::Nothing, format!("{major}.{minor}.{patch}"))
    };
    let tail = part(found, "pre");
    let dash = if tail.is_empty() { "" } else { "-" };
    Ok(Constraint {
        operator: part(found, "operator").to_owned(),
        bound: Version::read(&format!("{numbers}{dash}{tail}")).map_err(|_| wrong())?,
        wildcards,
    })
}

impl Constraint {
    fn is_satisfied_by(&self, version: &Version) -> bool {
        let order = version.order(&self.bound);
        match self.operator.as_str() {
            "" | "=" if self.wildcards == WildcardLevel::Nothing => order.is_eq(),
            "" | "=" | "~" | "~>" => self.tilde(version),
            "!=" => self.differs(version),
            ">" => self.compared(version).is_gt(),
            "<" => order.is_lt(),
            ">=" | "=>" => order.is_ge(),
            "<=" | "=<" if self.wildcards == WildcardLevel::All => (version.major, version.minor) == (0, 0),
            "<=" | "=<" => self.compared(version).is_le(),
            "^" => self.caret(version),
            _ => false,
        }
    }

    /// Compares a version with the bound, as far as the wildcards leave its numbers.
    fn compared(&self, version: &Version) -> Ordering {
        match self.wildcards {
            WildcardLevel::Nothing | WildcardLevel::All => version.order(&self.bound),
            WildcardLevel::Minor => version.major.cmp(&self.bound.major),
            WildcardLevel::Patch => (version.major, version.minor).cmp(&(self.bound.major, self.bound.minor)),
        }
    }

    fn differs(&self, version: &Version) -> bool {
        let is_patch = self.wildcards == WildcardLevel::Patch;
        self.compared(version).is_ne()
            || (is_patch && order_prereleases(&version.prerelease, &self.bound.prerelease).is_ne())
    }

    fn tilde(&self, version: &Version) -> bool {
        let bound = &self.bound;
        let is_zero = (bound.major, bound.minor, bound.patch) == (0, 0, 0);
        let is_any = is_zero && matches!(self.wildcards, WildcardLevel::Nothing | WildcardLevel::All);
        let is_minor = version.minor == bound.minor || self.wildcards == WildcardLevel::Minor;
        version.order(bound).is_ge() && (is_any || (version.major == bound.major && is_minor))
    }

    /// The first number that is not 0 must be the same, and those before it.
    fn caret(&self, version: &Version) -> bool {
        let bound = &self.bound;
        let ends_at_major = bound.major > 0 || self.wildcards == WildcardLevel::Minor;
        let ends_at_minor = ends_at_major || bound.minor > 0 || self.wildcards == WildcardLevel::Patch;
        version.order(bound).is_ge()
            && version.major == bound.major
            && (ends_at_major || version.minor == bound.minor)
            && (ends_at_minor || version.patch == bound.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::{highest, is_range};

    #[test]
    fn ranges_take_the_highest_tag_as_in_argo_cd() {
        let tags = [
            "v0.9.0",
            "v1.0.0",
            "v1.9.0",
            "v1.10.1",
            "1.10.1",
            "v2.0.0-rc.1",
            "v2.0.0",
            "release",
        ];
        for (range, expected) in [
            ("1.x", Some("v1.10.1")),
            ("v1.*", Some("v1.10.1")),
            ("~1.9", Some("v1.9.0")),
            (">=1.0.0 <1.10.0", Some("v1.9.0")),
            (">= 2.0.0-0 < 2.0.0", Some("v2.0.0-rc.1")),
            ("*", Some("v2.0.0")),
            ("3.x", None),
            // Versions and other names are looked up as they are.
            ("1.0", None),
            ("v1.9.0", None),
            ("main", None),
            ("HEAD", None),
            ("release/1.x", None),
        ] {
            assert_eq!(highest(range, tags.into_iter()), expected, "{range}");
        }
        // A tag that looks like a version but is invalid ends the search.
        assert_eq!(highest("1.x", ["v1.0.0", "v1.0.0-01"].into_iter()), None);
        assert_eq!(
            highest("1.x", ["v1.0.0", "v99999999999999999999.0.0"].into_iter()),
            None
        );
    }

    #[test]
    fn versions_and_branches_are_not_ranges() {
        for (text, expected) in [
            ("1.x", true),
            ("x", true),
            ("^1.2", true),
            ("1", false),
            ("v1.2.3", false),
            ("main", false),
            ("feature/1.x", false),
            ("", false),
        ] {
            assert_eq!(is_range(text), expected, "{text}");
        }
    }
}
