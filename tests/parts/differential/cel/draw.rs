//! Draws expressions of what the gateway permits in CEL. Most have the types that their places expect.

use super::Case;
use crate::differential::random::Random;
use crate::differential::rego::input;

const INPUTS: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Bool,
    Int,
    Double,
    Text,
    Texts,
    Map,
    Timestamp,
    Duration,
}

const ALL: &[Type] = &[
    Type::Bool,
    Type::Int,
    Type::Double,
    Type::Text,
    Type::Text,
    Type::Texts,
    Type::Map,
];

struct Scope<'a> {
    random: &'a mut Random,
    variables: Vec<(String, Type)>,
    /// Comprehensions around an expression, of which only a few are permitted.
    loops: usize,
}

pub(super) fn case(random: &mut Random) -> Case {
    let conjuncts = (0..=random.below(2))
        .map(|_| {
            let mut scope = Scope {
                random,
                variables: Vec::new(),
                loops: 0,
            };
            scope.expr(Type::Bool, 3)
        })
        .collect();
    Case {
        conjuncts,
        inputs: (0..INPUTS).map(|_| input(random)).collect(),
    }
}

impl Scope<'_> {
    fn pick(&mut self, list: &[&str]) -> String {
        self.random.pick(list).to_owned()
    }

    fn expr(&mut self, gives: Type, depth: usize) -> String {
        if self.random.chance(3) {
            return self.pick(&[
                "input.user",
                "input.replicas",
                "input.labels",
                "input.missing",
                "input.items",
            ]);
        }
        if self.random.chance(30) {
            let known = self.variables.iter().filter(|(_, known)| *known == gives);
            let known: Vec<String> = known.map(|(name, _)| name.clone()).collect();
            if !known.is_empty() {
                return self.random.pick(&known);
            }
        }
        if depth == 0 || (gives != Type::Bool && self.random.chance(30)) {
            return self.leaf(gives);
        }
        if self.random.chance(8) {
            let (condition, one, other) = (
                self.expr(Type::Bool, depth - 1),
                self.expr(gives, depth - 1),
                self.expr(gives, 0),
            );
            return format!("({condition} ? {one} : {other})");
        }
        let below = depth - 1;
        match gives {
            Type::Bool => self.bool(below),
            Type::Int => self.int(below),
            Type::Double => self.double(below),
            Type::Text => self.text(below),
            Type::Texts => self.texts(below),
            Type::Map => match self.random.below(3) {
                0 => format!("{{{}: {}}}", self.expr(Type::Text, 0), self.expr(Type::Text, below)),
                _ => self.leaf(Type::Map),
            },
            Type::Timestamp => match self.random.below(3) {
                0 => {
                    let (one, other) = (self.expr(Type::Timestamp, 0), self.expr(Type::Duration, 0));
                    format!("({one} {} {other})", self.pick(&["+", "-"]))
                }
                _ => format!("timestamp({})", self.expr(Type::Text, 0)),
            },
            Type::Duration => match self.random.below(3) {
                0 => format!(
                    "({} - {})",
                    self.expr(Type::Timestamp, 0),
                    self.expr(Type::Timestamp, 0)
                ),
                1 => format!("({} + {})", self.leaf(Type::Duration), self.leaf(Type::Duration)),
                _ => self.leaf(Type::Duration),
            },
        }
    }

    fn leaf(&mut self, gives: Type) -> String {
        match gives {
            Type::Bool => self.pick(&[
                "true",
                "false",
                "input.flag",
                "input.flag",
                "has(input.user)",
                "has(input.labels.team)",
            ]),
            Type::Int => self.pick(&[
                "0",
                "1",
                "-1",
                "2",
                "10",
                "9223372036854775807",
                "input.replicas",
                "input.sizes[0]",
                "input.items[0].size",
                "size(input.groups)",
            ]),
            Type::Double => self.pick(&["0.0", "1.5", "-2.5", "1e300", "input.replicas", "input.sizes[0]"]),
            Type::Text => self.pick(&[
                "input.user",
                "input.user",
                "input.verb",
                "input.labels.team",
                "input.labels['team']",
                "input.groups[0]",
                "input.items[0].name",
                "input.time",
                "input.version",
                "'alice'",
                "'blue'",
                "''",
                "'ß'",
                "'10'",
                "'a,b'",
                "input.labels[?'team'].orValue('none')",
                "input.?labels.?team.orValue('')",
            ]),
            Type::Texts => self.pick(&[
                "input.groups",
                "input.groups",
                "['alice', 'blue']",
                "[]",
                "input.items[0].tags",
            ]),
            Type::Map => self.pick(&["input.labels", "input", "input.items[0]", "{'team': 'blue'}", "{}"]),
            Type::Timestamp => self.pick(&["timestamp(input.time)", "timestamp('2026-11-29T15:30:00Z')"]),
            Type::Duration => self.pick(&[
                "duration('1h')",
                "duration('90m')",
                "duration('-1.5s')",
                "duration('1d')",
                "duration(input.user)",
                "duration('100ms')",
            ]),
        }
    }

    fn bool(&mut self, depth: usize) -> String {
        match self.random.below(19) {
            0 | 1 => {
                let (one, other) = (self.expr(Type::Bool, depth), self.expr(Type::Bool, depth));
                format!("({one} {} {other})", self.pick(&["&&", "||"]))
            }
            2 => format!("!({})", self.expr(Type::Bool, depth)),
            3..=6 => {
                let gives = self.random.pick(ALL);
                let (one, other) = (self.expr(gives, depth), self.expr(gives, depth));
                format!("{one} {} {other}", self.pick(&["==", "!=", "==", "<", "<=", ">", ">="]))
            }
            7 => {
                let (one, other) = (
                    self.random.pick(ALL),
                    self.random.pick(&[Type::Int, Type::Double, Type::Text]),
                );
                let (one, other) = (self.expr(one, 0), self.expr(other, 0));
                format!("{one} {} {other}", self.pick(&["==", "!=", "<", ">="]))
            }
            8 => {
                let gives = self.random.pick(&[Type::Texts, Type::Map]);
                format!("{} in {}", self.expr(Type::Text, depth), self.expr(gives, depth))
            }
            9 | 10 => {
                let function = self.pick(&["contains", "startsWith", "endsWith"]);
                format!(
                    "{}.{function}({})",
                    self.expr(Type::Text, depth),
                    self.expr(Type::Text, depth)
                )
            }
            11 => {
                let pattern = self.pick(&[
                    "'^a'",
                    "'^[a-z]+$'",
                    "r'\\d+'",
                    "'blue|red'",
                    "'^team-.*'",
                    "''",
                    "'(?i)BLUE'",
                    "r'^\\pL+$'",
                    "r'\\bb'",
                    "r'^\\w+$'",
                    "r'\\s'",
                    "'.'",
                    "r'^\\S*\\z'",
                    "'^.$'",
                    "'[[:alpha:]]'",
                    "'(?s)a.b'",
                    "r'\\W'",
                ]);
                format!("{}.matches({pattern})", self.expr(Type::Text, depth))
            }
            12..=14 if self.loops < 2 => self.macros(depth),
            15 => {
                let (one, other) = (self.expr(Type::Timestamp, depth), self.expr(Type::Timestamp, depth));
                format!("{one} {} {other}", self.pick(&["==", "<", ">=", ">"]))
            }
            16 => {
                let (one, other) = (self.expr(Type::Duration, depth), self.expr(Type::Duration, depth));
                format!("{one} {} {other}", self.pick(&["==", "<", ">="]))
            }
            17 => {
                let of = self.random.pick(ALL);
                let name = self.pick(&["string", "int", "double", "bool", "list", "map", "null_type", "uint"]);
                format!("type({}) == {name}", self.expr(of, 0))
            }
            18 => match self.random.below(4) {
                0 => format!("bool({})", self.expr(Type::Text, 0)),
                1 => "input.?user.hasValue()".to_owned(),
                2 => "has(input.labels.owner)".to_owned(),
                _ => format!("dyn({}) == {}", self.expr(Type::Int, 0), self.expr(Type::Double, 0)),
            },
            _ => self.leaf(Type::Bool),
        }
    }

    fn macros(&mut self, depth: usize) -> String {
        let (list, gives) = match self.random.below(4) {
            0 => ("input.items".to_owned(), Type::Map),
            1 => (self.expr(Type::Map, 0), Type::Text),
            2 => ("input.sizes".to_owned(), Type::Int),
            _ => (self.expr(Type::Texts, depth), Type::Text),
        };
        let name = format!("v{}", self.loops);
        self.loops += 1;
        self.variables.push((name.clone(), gives));
        let condition = if gives == Type::Map && self.random.chance(60) {
            format!("{name}.name == {}", self.expr(Type::Text, 0))
        } else {
            self.expr(Type::Bool, depth.min(1))
        };
        self.variables.pop();
        self.loops -= 1;
        match self.random.below(5) {
            0 => format!("{list}.all({name}, {condition})"),
            1 => format!("{list}.exists({name}, {condition})"),
            2 => format!("{list}.exists_one({name}, {condition})"),
            3 => format!("{list}.filter({name}, {condition}).size() > 0"),
            _ => format!("{list}.map({name}, {condition}) == [true]"),
        }
    }

    fn int(&mut self, depth: usize) -> String {
        match self.random.below(7) {
            0..=2 => {
                let (one, other) = (self.expr(Type::Int, depth), self.expr(Type::Int, depth));
                format!("({one} {} {other})", self.pick(&["+", "-", "*", "/", "%"]))
            }
            3 => {
                let of = self.random.pick(&[Type::Text, Type::Texts, Type::Map]);
                format!("size({})", self.expr(of, depth))
            }
            4 => {
                let of = self
                    .random
                    .pick(&[Type::Text, Type::Double, Type::Int, Type::Timestamp]);
                format!("int({})", self.expr(of, depth))
            }
            5 => {
                let function = self.pick(&["indexOf", "lastIndexOf"]);
                format!(
                    "{}.{function}({})",
                    self.expr(Type::Text, depth),
                    self.expr(Type::Text, 0)
                )
            }
            _ => {
                let function = self.pick(&[
                    "getFullYear",
                    "getMonth",
                    "getDate",
                    "getDayOfMonth",
                    "getDayOfWeek",
                    "getDayOfYear",
                    "getHours",
                    "getMinutes",
                    "getSeconds",
                    "getMilliseconds",
                ]);
                let zone = self.pick(&["", "", "", "'UTC'", "'+02:00'", "'Europe/Berlin'"]);
                format!("{}.{function}({zone})", self.expr(Type::Timestamp, 0))
            }
        }
    }

    fn double(&mut self, depth: usize) -> String {
        match self.random.below(3) {
            0 => {
                let of = self.random.pick(&[Type::Text, Type::Int]);
                format!("double({})", self.expr(of, depth))
            }
            _ => {
                let (one, other) = (self.expr(Type::Double, depth), self.expr(Type::Double, depth));
                format!("({one} {} {other})", self.pick(&["+", "-", "*", "/"]))
            }
        }
    }

    fn text(&mut self, depth: usize) -> String {
        match self.random.below(7) {
            0 => format!("({} + {})", self.expr(Type::Text, depth), self.expr(Type::Text, depth)),
            1 => {
                let of = self.random.pick(&[
                    Type::Int,
                    Type::Double,
                    Type::Text,
                    Type::Bool,
                    Type::Timestamp,
                    Type::Duration,
                ]);
                format!("string({})", self.expr(of, depth))
            }
            2 => {
                let function = self.pick(&["lowerAscii", "upperAscii", "trim"]);
                format!("{}.{function}()", self.expr(Type::Text, depth))
            }
            3 => {
                let range = self.pick(&["1", "0, 2", "2, 1", "-1", "0, 99", "3"]);
                format!("{}.substring({range})", self.expr(Type::Text, depth))
            }
            4 => {
                let separator = self.pick(&["", "','", "'-'"]);
                format!("{}.join({separator})", self.expr(Type::Texts, depth))
            }
            5 => format!("{}[{}]", self.expr(Type::Texts, depth), self.expr(Type::Int, 0)),
            _ => format!("{}[{}]", self.expr(Type::Map, 0), self.expr(Type::Text, 0)),
        }
    }

    fn texts(&mut self, depth: usize) -> String {
        match self.random.below(5) {
            0 => {
                let separator = self.pick(&["','", "'-'", "''", "'a'"]);
                let limit = self.pick(&["", "", ", 2", ", 0", ", -1"]);
                format!("{}.split({separator}{limit})", self.expr(Type::Text, depth))
            }
            1 => format!("({} + {})", self.expr(Type::Texts, depth), self.expr(Type::Texts, 0)),
            2 if self.loops < 2 => {
                let name = format!("v{}", self.loops);
                self.loops += 1;
                self.variables.push((name.clone(), Type::Text));
                let list = self.leaf(Type::Texts);
                let value = self.expr(Type::Text, depth.min(1));
                self.variables.pop();
                self.loops -= 1;
                format!("{list}.map({name}, {value})")
            }
            3 => format!("[{}, {}]", self.expr(Type::Text, depth), self.expr(Type::Text, 0)),
            _ => self.leaf(Type::Texts),
        }
    }
}
