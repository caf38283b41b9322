//! Draws glob patterns, and texts that match them or nearly do.

use crate::differential::random::Random;

/// What mutations insert into patterns: metacharacters, parts of groups and unusual characters.
pub(crate) const ODD: &[&str] = &[
    "*", "**", "?", "[", "]", "{", "}", ",", "\\", "!", "-", "[]", "[!]", "[a-", "{,", "/", "é", "日", "\u{0}",
    "\u{fffd}", "[a-zA-Z]", "[z-a]", "\n", "a", "%",
];
/// What mutations insert into texts.
pub(crate) const NEAR: &[&str] = &[
    "/", "a", "b", "x", ".", "-", "*", "é", "日", "\u{0}", "A", "\n", ",", "}", "\\", "prod",
];

const WORDS: &[&str] = &[
    "prod", "dev", "p", "a", "b", "ab", "ba", "aa", "/", "-", ".", "x", "ns", "app", "-db", "é", "日本",
];
const FILLING: &[&str] = &["", "", "a", "b", "ab", "x", "prod", "ns", "a/b", "/", ".", "é", "日"];

/// A pattern as a list of pieces, of which matching texts can be made too.
pub(crate) struct Glob(Vec<Piece>);

enum Piece {
    Text(&'static str),
    Escaped(char),
    Star,
    Stars,
    Single,
    Class(&'static str, &'static [&'static str]),
    Group(Vec<Glob>),
    /// A piece that makes the pattern invalid.
    Raw(&'static str),
}

impl Glob {
    pub(crate) fn new(random: &mut Random) -> Self {
        let (groups, odd) = (random.chance(25), random.chance(8));
        Self::nested(random, if groups { 2 } else { 0 }, odd)
    }

    fn nested(random: &mut Random, depth: usize, odd: bool) -> Self {
        let length = 1 + random.below(6);
        Self((0..length).map(|_| piece(random, depth, odd)).collect())
    }

    /// The pattern as text.
    pub(crate) fn pattern(&self) -> String {
        self.0.iter().map(Piece::pattern).collect()
    }

    /// A text that often matches. It need not if the pattern has classes, is invalid or has
    /// separators.
    pub(crate) fn text(&self, random: &mut Random) -> String {
        self.0.iter().map(|piece| piece.text(random)).collect()
    }
}

fn piece(random: &mut Random, depth: usize, odd: bool) -> Piece {
    const CLASSES: &[(&str, &[&str])] = &[
        ("[ab]", &["a", "b", "c"]),
        ("[!ab]", &["x", "/", "a"]),
        ("[a-c]", &["a", "c", "d"]),
        ("[!a-c]", &["x", "b"]),
        ("[ab-]", &["-", "a"]),
        ("[!!]", &["x", "!"]),
        ("[\\]]", &["]", "\\"]),
        ("[日-語]", &["本", "a"]),
        ("[é]", &["é", "e"]),
        ("[!x]", &["y", "x", "é"]),
    ];
    match random.below(100) {
        0..40 => Piece::Text(random.pick(WORDS)),
        40..62 => Piece::Star,
        62..67 => Piece::Stars,
        67..75 => Piece::Single,
        75..83 => {
            let (pattern, members) = random.one(CLASSES);
            Piece::Class(pattern, members)
        }
        83..86 => Piece::Escaped(*random.one(&['*', '?', '[', '{', '\\', 'a', ',', '}'])),
        86..90 if odd => Piece::Raw(random.pick(&[
            "[", "[a", "[]", "[!]", "[a-zA-Z]", "[z-a]", "{", "}", ",", "]", "\\", "\u{fffd}", "\u{0}", "[!", "{a,",
            "[a-", "{{",
        ])),
        _ if depth > 0 => {
            let alternatives = 1 + random.below(3);
            let mut alternatives: Vec<Glob> = (0..alternatives)
                .map(|_| Glob::nested(random, depth - 1, odd))
                .collect();
            if random.chance(15) {
                alternatives.push(Glob(Vec::new()));
            }
            Piece::Group(alternatives)
        }
        _ => Piece::Text(random.pick(WORDS)),
    }
}

impl Piece {
    fn pattern(&self) -> String {
        match self {
            Self::Text(text) | Self::Raw(text) | Self::Class(text, _) => (*text).to_owned(),
            Self::Escaped(c) => format!("\\{c}"),
            Self::Star => "*".to_owned(),
            Self::Stars => "**".to_owned(),
            Self::Single => "?".to_owned(),
            Self::Group(alternatives) => {
                let written: Vec<String> = alternatives.iter().map(Glob::pattern).collect();
                format!("{{{}}}", written.join(","))
            }
        }
    }

    fn text(&self, random: &mut Random) -> String {
        match self {
            Self::Text(text) | Self::Raw(text) => (*text).to_owned(),
            Self::Escaped(c) => c.to_string(),
            Self::Star | Self::Stars => random.pick(FILLING).to_owned(),
            Self::Single => random.pick(&["a", "x", "/", "é", ""]).to_owned(),
            Self::Class(_, members) => random.pick(members).to_owned(),
            Self::Group(alternatives) => random.one(alternatives).text(random),
        }
    }
}
