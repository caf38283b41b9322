//! Draws documents: everyday ones, as people keep them in repositories, and odd ones.

use super::words::{ALPHABET, KEYS, ODD_PLAIN, ODD_QUOTED, PLAIN, QUOTED, TAGS, WORDS};
use super::{Case, Place};
use crate::differential::random::Random;

pub(super) fn case(random: &mut Random) -> Case {
    let place = *random.one(&[
        Place::Generator,
        Place::Generator,
        Place::Patch,
        Place::Map,
        Place::List,
    ]);
    let everyday = random.chance(35);
    let mut draw = Draw {
        everyday,
        anchors: 0,
        nodes: 0,
        random,
    };
    let mut text = draw.document(place);
    if !everyday {
        if random.chance(45) {
            for _ in 0..=random.below(3) {
                text = random.mutate(&text, ALPHABET);
            }
        }
        if random.chance(3) {
            text = text.replace('\n', random.pick(&["\r", "\u{85}", "\u{2028}"]));
        }
        if random.chance(3) {
            text = format!("\u{feff}{text}");
        }
    }
    if random.chance(8) {
        text = text.replace("\r\n", "\n").replace('\n', "\r\n");
    }
    Case { place, everyday, text }
}

struct Draw<'r> {
    random: &'r mut Random,
    everyday: bool,
    /// The number of anchors written so far: `&a0`, `&a1` and so on.
    anchors: usize,
    nodes: usize,
}

impl Draw<'_> {
    fn odd(&mut self, percent: usize) -> bool {
        !self.everyday && self.random.chance(percent)
    }

    fn document(&mut self, place: Place) -> String {
        if !self.everyday && self.random.chance(2) {
            let depth = 1 + self.random.below(90);
            return self.deep(depth);
        }
        let mut text = String::new();
        if self.odd(4) {
            let directive = [
                "%YAML 1.1\n",
                "%YAML 1.2\n",
                "%YAML 2.0\n",
                "%TAG !e! tag:x,2000:\n",
                "%X y\n",
            ];
            text.push_str(self.random.pick(&directive));
            text.push_str("---\n");
        }
        if self.random.chance(12) {
            text.push_str("# a comment: x\n");
        }
        if self.random.chance(15) {
            text.push_str("---\n");
        }
        let many = self.odd(6);
        text.push_str(&self.root(place));
        if many {
            for _ in 0..=self.random.below(2) {
                let ends = ["---\n", "...\n", "--- ", "...\n---\n", "---\n# c\n---\n", "--- |\n"];
                text.push_str(self.random.pick(&ends));
                text.push_str(&self.root(place));
            }
        }
        if self.random.chance(15) {
            text.truncate(text.trim_end_matches('\n').len());
        }
        if self.random.chance(4) {
            text.push_str("\n# the end\n");
        }
        text
    }

    fn deep(&mut self, depth: usize) -> String {
        match self.random.below(6) {
            4 | 5 => {
                let (width, levels) = (2 + self.random.below(12), 1 + self.random.below(3));
                let names = ["a", "b", "c", "d"];
                let level = |at: usize| {
                    let item = if at == 0 {
                        "x, ".to_owned()
                    } else {
                        format!("*{}, ", names[at - 1])
                    };
                    format!("{0}: &{0} [{1}]\n", names[at], item.repeat(width))
                };
                (0..=levels).map(level).collect()
            }
            0 => format!("{}{}", "[".repeat(depth), "]".repeat(depth)),
            1 => format!("{}{}", "{a: ".repeat(depth), "}".repeat(depth)),
            2 => "- ".repeat(depth) + "a\n",
            _ => (0..depth).map(|level| format!("{}a:\n", " ".repeat(level))).collect(),
        }
    }

    fn root(&mut self, place: Place) -> String {
        if self.odd(4) {
            return self.scalar(0, false);
        }
        if self.random.chance(6) {
            return self.json(3) + "\n";
        }
        if self.odd(6) {
            return self.flow(3) + "\n";
        }
        let list = match place {
            Place::Generator => self.random.chance(50),
            Place::List => !self.odd(10),
            Place::Patch | Place::Map => self.odd(10),
        };
        if list {
            self.sequence(0, 3, place == Place::Generator)
        } else {
            self.mapping(0, 3)
        }
    }

    fn indent(&mut self) -> usize {
        if self.odd(15) {
            1 + self.random.below(4)
        } else {
            *self.random.one(&[2, 2, 2, 4])
        }
    }

    fn mapping(&mut self, indent: usize, depth: usize) -> String {
        let count = 1 + self.random.below(4);
        let mut text = String::new();
        let mut used = Vec::new();
        for _ in 0..count {
            let mut key = self.key();
            let is_used = used
                .iter()
                .any(|used: &String| used.trim_matches('"') == key.trim_matches('"'));
            if is_used && !self.odd(50) {
                key = format!("{}{}", self.random.pick(WORDS), used.len());
            }
            used.push(key.clone());
            self.between(&mut text, indent);
            text.push_str(&" ".repeat(indent));
            if self.odd(4) {
                text.push_str("? ");
                text.push_str(&key);
                text.push_str(self.random.pick(&["\n", "\n", ""]));
                text.push_str(&" ".repeat(indent));
            } else {
                text.push_str(&key);
                if self.odd(4) {
                    text.push(' ');
                }
            }
            text.push(':');
            let value = if key == "<<" && !self.odd(30) {
                self.merged()
            } else {
                self.value(indent, depth)
            };
            text.push_str(&value);
        }
        text
    }

    fn between(&mut self, text: &mut String, indent: usize) {
        if self.random.chance(5) {
            text.push_str(&" ".repeat(indent));
            text.push_str("# a comment\n");
        }
        if self.random.chance(4) {
            text.push('\n');
        }
        if self.odd(2) {
            text.push_str(self.random.pick(&["\t\n", "  \n", " \t# c\n", "#c\n", "\t# c\n"]));
        }
    }

    fn merged(&mut self) -> String {
        if self.anchors == 0 {
            return " {m: 1}\n".to_owned();
        }
        let anchor = self.random.below(self.anchors);
        match self.random.below(3) {
            0 => format!(" [*a{anchor}, {{o: 2}}]\n"),
            _ => format!(" *a{anchor}\n"),
        }
    }

    fn key(&mut self) -> String {
        if self.odd(25) {
            return self.random.pick(KEYS).to_owned();
        }
        if self.anchors > 0 && self.random.chance(6) {
            return "<<".to_owned();
        }
        if self.random.chance(6) {
            return format!("\"{}\"", self.random.pick(WORDS));
        }
        self.random.pick(WORDS).to_owned()
    }

    /// - `maps`: items are mappings, as generators need them.
    fn sequence(&mut self, indent: usize, depth: usize, maps: bool) -> String {
        let mut text = String::new();
        for _ in 0..=self.random.below(3) {
            self.between(&mut text, indent);
            text.push_str(&" ".repeat(indent));
            text.push('-');
            if (maps && !self.odd(15)) || (depth > 0 && self.random.chance(30)) {
                // The mapping begins in the line of the dash.
                let inner = self.mapping(indent + 2, depth.saturating_sub(1));
                let trimmed = inner.trim_start();
                if self.everyday && (trimmed.starts_with('#') || inner.starts_with('\n')) {
                    text.push('\n');
                    text.push_str(&inner);
                } else {
                    text.push(' ');
                    text.push_str(trimmed);
                }
            } else {
                let value = self.value(indent, depth.saturating_sub(1));
                text.push_str(&value);
            }
        }
        text
    }

    /// A value after a colon or a dash, with the end of its line.
    fn value(&mut self, indent: usize, depth: usize) -> String {
        self.nodes += 1;
        let mut text = String::new();
        let mut anchored = false;
        if self.random.chance(if self.everyday { 4 } else { 8 }) {
            text.push_str(&format!(" &a{}", self.anchors));
            anchored = true;
        }
        if self.odd(5) {
            text.push(' ');
            text.push_str(self.random.pick(TAGS));
        }
        let inner = match self.random.below(100) {
            0..22 if depth > 0 && self.nodes < 25 => {
                let step = self.indent();
                format!("\n{}", self.mapping(indent + step, depth - 1))
            }
            22..32 if depth > 0 && self.nodes < 25 => {
                let step = if self.random.chance(30) { 0 } else { self.indent() };
                // A list in a list must be indented.
                let step = if self.everyday { step.max(2) } else { step };
                format!("\n{}", self.sequence(indent + step, depth - 1, false))
            }
            32..38 => format!(" {}\n", self.flow(2)),
            38..45 => self.block_scalar(indent),
            45..50 if self.anchors > 0 && text.is_empty() => {
                format!(" *a{}\n", self.random.below(self.anchors))
            }
            50..53 => "\n".to_owned(),
            53..56 => {
                // A plain scalar of two lines.
                let pad = " ".repeat(indent + 2);
                let (one, two) = (self.random.pick(WORDS), self.random.pick(WORDS));
                format!(" {one} {two}\n{pad}{two}\n")
            }
            _ => {
                let scalar = self.scalar(indent, false);
                let blank = if self.odd(4) {
                    self.random.pick(&["  ", "\t", " \t", "", "\n  "])
                } else {
                    " "
                };
                let comment = if self.random.chance(5) { " # why" } else { "" };
                format!("{blank}{scalar}{comment}\n")
            }
        };
        text.push_str(&inner);
        if anchored {
            self.anchors += 1;
        }
        text
    }

    fn scalar(&mut self, indent: usize, flow: bool) -> String {
        if self.odd(40) {
            let list = if self.random.chance(70) { ODD_PLAIN } else { ODD_QUOTED };
            let text = self.random.pick(list).to_owned();
            return if self.random.chance(20) {
                self.random.mutate(&text, ALPHABET)
            } else {
                text
            };
        }
        if self.random.chance(25) {
            return self.random.pick(QUOTED).to_owned();
        }
        let _ = indent;
        let plain = self.random.pick(PLAIN);
        // Everyday documents quote these.
        let quotes = plain.starts_with(['*', '{', '@', '%']) || plain.contains(": ");
        let quotes = quotes || (flow && plain.contains([',', '[', ']', '{', '}', ':', '?', '#']));
        if quotes && !self.odd(40) {
            format!("'{}'", plain.replace('\'', "''"))
        } else {
            plain.to_owned()
        }
    }

    fn block_scalar(&mut self, indent: usize) -> String {
        const LINES: &[&str] = &[
            "a",
            "key: value",
            "# no comment",
            "- x",
            "a b c",
            "",
            "",
            "  more",
            "{{ .x }}",
            "\"q\"",
            "é 🙂",
            "x: |",
            "$(a)",
            "end.",
        ];
        const ODD_LINES: &[&str] = &[
            "\ta",
            " \t",
            "   ",
            "\t",
            "a\t",
            "a  ",
            "---",
            "...",
            "    deep",
            " one",
            "\u{85}",
            "a\u{2028}b",
            "#",
            "%x",
            "\u{feff}",
        ];
        let mut text = format!(" {}", self.random.pick(&["|", "|", "|-", ">", ">-", "|+"]));
        let mut step = 2;
        if self.odd(30) {
            let digit = 1 + self.random.below(5);
            text = match self.random.below(4) {
                0 => format!(" |{digit}"),
                1 => format!(" >{digit}-"),
                2 => format!(" |+{digit}"),
                _ => format!(
                    " {}",
                    self.random
                        .pick(&["|0", "|10", "|--", ">+-", "| # c", "|-# c", ">a", "|\t", ">2 # c", "|1"])
                ),
            };
            if self.random.chance(70) {
                step = digit;
            }
        }
        text.push('\n');
        for _ in 0..=self.random.below(4) {
            let line = if self.odd(25) {
                self.random.pick(ODD_LINES)
            } else {
                self.random.pick(LINES)
            };
            if !line.is_empty() {
                let step = if self.odd(8) { self.random.below(5) } else { step };
                text.push_str(&" ".repeat(indent + step));
                text.push_str(line);
            }
            text.push('\n');
        }
        text
    }

    fn flow(&mut self, depth: usize) -> String {
        let gap = if self.odd(15) {
            self.random.pick(&["", "  ", "\n", "\n  ", "\t", " # c\n "])
        } else {
            " "
        };
        let count = self.random.below(4);
        let list = self.random.chance(50);
        let items: Vec<String> = (0..count)
            .map(|at| {
                let value = if depth > 0 && self.random.chance(20) {
                    self.flow(depth - 1)
                } else {
                    self.scalar(0, true)
                };
                if list {
                    return if self.odd(8) {
                        format!("{}: {value}", self.key())
                    } else {
                        value
                    };
                }
                if self.odd(10) {
                    return self
                        .random
                        .pick(&[
                            "a", "a:", "a :b", ": b", "? a", "? a : b", "\"a\":b", "'a':1", "[a]: b", "a:b", "?",
                        ])
                        .to_owned();
                }
                let key = if self.odd(20) {
                    self.key()
                } else {
                    format!("{}{at}", self.random.pick(WORDS))
                };
                format!("{key}:{}{value}", if self.odd(10) { "" } else { " " })
            })
            .collect();
        let (open, close) = if list { ("[", "]") } else { ("{", "}") };
        let comma = if self.odd(8) {
            self.random.pick(&[",", " ,", ",,", ",\n"])
        } else {
            ","
        };
        let mut joined = items.join(&format!("{comma}{gap}"));
        if self.odd(8) {
            joined.push(',');
        }
        format!("{open}{joined}{close}")
    }

    fn json(&mut self, depth: usize) -> String {
        let pretty = self.random.chance(50);
        let gap = if pretty { "\n  " } else { "" };
        let items: Vec<String> = (0..self.random.below(4))
            .map(|at| {
                let value = if depth > 0 && self.random.chance(40) {
                    self.json(depth - 1)
                } else {
                    self.random
                        .pick(&[
                            "1",
                            "-2.5",
                            "true",
                            "null",
                            "\"a\"",
                            "\"a\\u00e9\\n\"",
                            "1e3",
                            "[]",
                            "{}",
                            "[1,2]",
                            "\"\"",
                            "\"yes\"",
                            "12345678901",
                        ])
                        .to_owned()
                };
                format!(
                    "{gap}\"{}{at}\":{}{value}",
                    self.random.pick(WORDS),
                    self.random.pick(&["", " "])
                )
            })
            .collect();
        format!("{{{}{}}}", items.join(","), if pretty { "\n" } else { "" })
    }
}
