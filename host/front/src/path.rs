//! The paths of a front, as a table: it routes requests, and `tollgate check --routes` prints it.
//!
//! Security: a path is compared as the client sent it and is never decoded here. A front that decodes a segment
//! refuses what two readers could read differently.

use std::fmt;

use http::{Method, Uri};
use tollgate_proxy::target::Error;

/// The methods of a [`Path`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Methods {
    /// Every method.
    Any,
    /// `GET` and `HEAD`.
    Read,
    /// `GET` alone: the answer is a stream or a connection.
    Get,
    /// `GET`, `HEAD` and `POST`.
    ReadOrPost,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `DELETE`.
    Delete,
}

impl Methods {
    fn include(self, method: &Method) -> bool {
        let reads = *method == Method::GET || *method == Method::HEAD;
        match self {
            Self::Any => true,
            Self::Read => reads,
            Self::Get => *method == Method::GET,
            Self::ReadOrPost => reads || *method == Method::POST,
            Self::Post => *method == Method::POST,
            Self::Put => *method == Method::PUT,
            Self::Delete => *method == Method::DELETE,
        }
    }
}

impl fmt::Display for Methods {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Any => "*",
            Self::Read => "GET,HEAD",
            Self::Get => "GET",
            Self::ReadOrPost => "GET,HEAD,POST",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        })
    }
}

/// A part of a [`Path`] behind its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// These characters.
    Text(&'static str),
    /// One segment, which may be empty: everything up to the next `/`. The name is for people.
    Segment(&'static str),
    /// Everything that is left: nothing, or from `/` on. Always the last part.
    Rest(&'static str),
}

/// What answers the requests of a [`Path`]. Some credentials are for some of them only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answerer {
    /// Tollgate.
    Gateway,
    /// A server behind it.
    Backend,
    /// The API server of a cluster.
    Cluster,
}

impl Answerer {
    /// Every one.
    pub const ALL: &'static [Self] = &[Self::Gateway, Self::Backend, Self::Cluster];
}

impl fmt::Display for Answerer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Gateway => "gateway",
            Self::Backend => "backend",
            Self::Cluster => "cluster",
        })
    }
}

/// A row of a front's table. The first row that matches wins.
#[derive(Clone, Copy, Debug)]
pub struct Path<O: 'static> {
    /// The methods that are served.
    pub methods: Methods,
    /// How the path begins: one of these.
    pub prefixes: &'static [&'static str],
    /// What follows the prefix.
    pub parts: &'static [Part],
    /// What a request to it asks for.
    pub operation: O,
    /// Who answers it.
    pub answerer: Answerer,
}

/// Most segments that a path captures.
const MAX_SEGMENTS: usize = 3;

/// The variable parts of a path that matched, encoded as the client sent them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captures<'a> {
    /// Its segments, in their order. Empty where it has fewer.
    pub segments: [&'a str; MAX_SEGMENTS],
    /// What is left: empty, or from `/` on.
    pub rest: &'a str,
}

impl<'a> Captures<'a> {
    /// The first segment, for a path with one name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        let [name, ..] = self.segments;
        name
    }

    /// [`Self::name`], decoded once. `None` if it is empty or longer than `most` bytes.
    ///
    /// # Errors
    /// It is not UTF-8. A caller has checked the path with [`tollgate_proxy::target::check_path`],
    /// which refuses what could be decoded twice.
    pub fn decoded_name(&self, most: usize) -> Result<Option<String>, Error> {
        let name = percent_encoding::percent_decode_str(self.name());
        let name = name.decode_utf8().map_err(|_| Error::NotUtf8)?;
        let fits = !name.is_empty() && name.len() <= most;
        Ok(fits.then(|| name.into_owned()))
    }
}

/// The end of a path, and its query, as the client sent them: what another server is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    uri: Uri,
    from: usize,
}

impl Rest {
    /// The rest that `captures` has of `uri`.
    #[must_use]
    pub fn of(captures: &Captures<'_>, uri: &Uri) -> Self {
        Self {
            // The clone shares the text, and an offset into it needs no copy of the rest.
            from: uri.path().len().saturating_sub(captures.rest.len()),
            uri: uri.clone(),
        }
    }

    /// Empty, or from `/` on.
    #[must_use]
    pub fn path(&self) -> &str {
        self.uri.path().get(self.from..).unwrap_or_default()
    }

    /// What follows `?`.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.uri.query()
    }
}

impl<O> Path<O> {
    /// A row that the gateway answers.
    #[must_use]
    pub const fn new(
        methods: Methods,
        prefixes: &'static [&'static str],
        parts: &'static [Part],
        operation: O,
    ) -> Self {
        Self {
            methods,
            prefixes,
            parts,
            operation,
            answerer: Answerer::Gateway,
        }
    }
}

impl<O: Copy> Path<O> {
    /// The same row, answered by somebody else.
    #[must_use]
    pub const fn answered_by(self, answerer: Answerer) -> Self {
        Self { answerer, ..self }
    }

    /// The variable parts of `path`; `None` if this row is not about it.
    #[must_use]
    pub fn matches<'a>(&self, path: &'a str) -> Option<Captures<'a>> {
        let mut tail = self.prefixes.iter().find_map(|prefix| path.strip_prefix(prefix))?;
        let mut captures = Captures::default();
        let mut segments = captures.segments.iter_mut();
        for part in self.parts {
            match part {
                Part::Text(text) => tail = tail.strip_prefix(text)?,
                Part::Segment(_) => {
                    let (segment, rest) = tail.split_at_checked(tail.find('/').unwrap_or(tail.len()))?;
                    // A row with more segments than fit matches nothing, rather than lose a name.
                    *segments.next()? = segment;
                    tail = rest;
                }
                Part::Rest(_) => {
                    (captures.rest, tail) = (tail, "");
                    // Otherwise `/k8sx` would be read as `/k8s` with a rest.
                    if !captures.rest.is_empty() && !captures.rest.starts_with('/') {
                        return None;
                    }
                }
            }
        }
        tail.is_empty().then_some(captures)
    }
}

/// Finds the first row of `table` for a request, among those that one of `answered_by` answers. `None` if there is none.
pub fn find<'a, O: Copy>(
    table: &'static [Path<O>],
    method: &Method,
    path: &'a str,
    answered_by: &[Answerer],
) -> Option<(&'static Path<O>, Captures<'a>)> {
    let rows = table.iter().filter(|row| answered_by.contains(&row.answerer));
    let mut rows = rows.filter(|row| row.methods.include(method));
    rows.find_map(|row| Some((row, row.matches(path)?)))
}

/// Whether a front has a path that one of `answered_by` answers, with any method.
#[must_use]
pub fn is_in<O: Copy>(table: &'static [Path<O>], path: &str, answered_by: &[Answerer]) -> bool {
    let mut rows = table.iter().filter(|row| answered_by.contains(&row.answerer));
    rows.any(|row| row.matches(path).is_some())
}

/// A row as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathLine {
    /// Methods, with commas; `*` for all.
    pub methods: String,
    /// With `{name}` for a segment, and `{name...}` for everything that is left.
    pub path: String,
    /// Who answers it.
    pub answerer: Answerer,
    /// Whether the settings open it. Otherwise it gets 404.
    pub is_open: bool,
}

/// The rows of a table as people read them, one for each prefix.
#[must_use]
pub fn lines<O: Copy>(table: &'static [Path<O>], is_open: impl Fn(O) -> bool) -> Vec<PathLine> {
    let line = |row: &Path<O>, prefix: &str| PathLine {
        is_open: is_open(row.operation),
        methods: row.methods.to_string(),
        path: row.parts.iter().fold(prefix.to_owned(), |path, part| match part {
            Part::Text(text) => path + text,
            Part::Segment(name) => format!("{path}{{{name}}}"),
            Part::Rest(name) => format!("{path}{{{name}...}}"),
        }),
        answerer: row.answerer,
    };
    let of_row = |row: &'static Path<O>| row.prefixes.iter().map(|prefix| line(row, prefix)).collect::<Vec<_>>();
    table.iter().flat_map(of_row).collect()
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::{Answerer, Captures, Methods, Part, Path, find, is_in, lines};

    const TABLE: &[Path<u8>] = &[
        Path::new(Methods::Read, &["/a", "/b"], &[], 1),
        Path::new(
            Methods::Any,
            &["/a/"],
            &[Part::Segment("name"), Part::Text("/k8s"), Part::Rest("rest")],
            2,
        )
        .answered_by(Answerer::Cluster),
        Path::new(Methods::Delete, &["/a/"], &[Part::Segment("name")], 3),
    ];

    fn of(method: &Method, path: &str) -> Option<(u8, [String; 2])> {
        let (row, Captures { segments, rest }) = find(TABLE, method, path, Answerer::ALL)?;
        Some((row.operation, [segments[0].to_owned(), rest.to_owned()]))
    }

    #[test]
    fn a_path_has_the_parts_that_the_client_sent() {
        let found = |operation, name: &str, rest: &str| Some((operation, [name.to_owned(), rest.to_owned()]));
        for (method, path, expected) in [
            (Method::GET, "/a", found(1, "", "")),
            (Method::HEAD, "/b", found(1, "", "")),
            (Method::POST, "/a", None),
            (Method::GET, "/ab", None),
            (Method::PUT, "/a/x%2Fy/k8s", found(2, "x%2Fy", "")),
            (Method::GET, "/a/x/k8s/api//v1", found(2, "x", "/api//v1")),
            (Method::GET, "/a//k8s/", found(2, "", "/")),
            (Method::GET, "/a/x/k8sx", None),
            (Method::GET, "/a/x/y/k8s", None),
            (Method::DELETE, "/a/x", found(3, "x", "")),
            (Method::DELETE, "/a/x/", None),
            (Method::GET, "/a/x", None),
        ] {
            assert_eq!(of(&method, path), expected, "{method} {path}");
        }
        assert!(is_in(TABLE, "/a/x", Answerer::ALL) && !is_in(TABLE, "/a/x", &[Answerer::Cluster]));
    }

    #[test]
    fn a_table_is_printed_row_by_row() {
        let printed: Vec<_> = lines(TABLE, |operation| operation != 3)
            .into_iter()
            .map(|line| format!("{} {} {} {}", line.methods, line.path, line.answerer, line.is_open))
            .collect();
        assert_eq!(
            printed,
            [
                "GET,HEAD /a gateway true",
                "GET,HEAD /b gateway true",
                "* /a/{name}/k8s{rest...} cluster true",
                "DELETE /a/{name} gateway false",
            ]
        );
    }
}
