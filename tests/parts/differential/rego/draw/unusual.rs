//! Constructs whose meaning depends on the order in which a body is evaluated, on what a name stands
//! for, or on parts of a head that have no value for some of its solutions. The gateway refuses many
//! of them, and must mean what OPA means by the others.

use super::{Any, Number, Object, Scope, Set, Text, Type};
use crate::differential::random::Random;
use crate::differential::rego::{File, Rule};

/// Lists and objects with keys that a loop finds.
const COLLECTIONS: &[&str] = &[
    "input.labels",
    "input.labels",
    "input.groups",
    "input.sizes",
    "input.items[0]",
    "data.names",
    "data.teams",
    "data.limits",
    "data.rows",
    "{\"a\": \"a\", \"blue\": \"BLUE\"}",
    "[\"a\", \"blue\"]",
];
/// Values whose parts some rows do not have.
const ROWS: &[&str] = &[
    "input.items",
    "data.rows",
    "data.teams",
    "[{\"name\": \"a\", \"why\": \"b\"}, {\"name\": \"blue\"}]",
    "[{\"name\": \"blue\"}, {\"name\": \"a\", \"why\": \"b\"}]",
    "{\"a\": {\"size\": 1}, \"b\": {\"name\": \"a\"}}",
];
const FIELDS: &[&str] = &["name", "size", "tags", "why", "a"];
/// Names of functions, as names of variables.
const FUNCTIONS: &[&str] = &["count", "lower", "type_name", "contains"];
const IMPORTS: &[&str] = &[
    "data.names",
    "data.teams as v1",
    "data.limits as v2",
    "input.labels",
    "input.labels as r0",
    "input.user as v3",
    "data.example.r1",
    "data.lib",
    "data.lib.r0 as f",
    "data.rows as count",
];

/// Imports of some of the files.
pub(super) fn imports(random: &mut Random, files: &[File]) -> Vec<(File, String)> {
    let amount = 1 + random.below(2);
    let import = |random: &mut Random| (random.pick(files), random.pick(IMPORTS).to_owned());
    (0..amount).map(|_| import(random)).collect()
}

impl Scope<'_> {
    /// The name of a variable of this or another body, of a rule, an import or a function.
    pub(super) fn name_of_something_else(&mut self) -> String {
        match self.random.below(6) {
            0 => self.pick(FUNCTIONS),
            1 | 2 if !self.rules.is_empty() => self.random.pick(self.rules).name,
            3 => self.pick(&["names", "labels", "lib", "f", "r0", "r1"]),
            _ => format!("v{}", 1 + self.random.below((*self.names).max(1))),
        }
    }

    pub(super) fn unusual_statement(&mut self, depth: usize) -> String {
        let collection = self.pick(COLLECTIONS);
        let key = self.variable(Any);
        let some = self.pick(&["some KEY; ", ""]).replace("KEY", &key);
        match self.random.below(10) {
            0 | 1 => some + &self.used_beside_index(&collection, &key),
            2 => some + &self.used_before_index(&collection, &key),
            3 => self.object_in_rows(),
            4 => self.names_of_comprehension(&collection, &key),
            5 => self.composite_index(&collection, &key),
            6 => some + &self.two_variables(&collection, &key),
            7 => self.output_argument(&collection, &key),
            8 => {
                let held = self.pick(&["data.lib", "data.example", "data"]);
                let (item, value) = (self.variable(Any), self.expr(Text, 0));
                format!("some {key}, {item} in {held}; {key} != {value}; {item} != 7")
            }
            _ => {
                let (one, other) = (self.expr(Set, 0), self.expr(Set, 0));
                match self.random.below(4) {
                    0 => format!("{one} | {other}"),
                    1 => format!("{one} | {other} == {{\"a\", \"blue\"}}"),
                    2 => format!("count ({one} & {other}) == 0"),
                    _ => format!("({})", self.closed(depth.saturating_sub(1))),
                }
            }
        }
    }

    /// A variable in the statement that also has the index that gives it values.
    fn used_beside_index(&mut self, collection: &str, key: &str) -> String {
        let equals = self.pick(&["==", "==", "=", "!="]);
        let (used, value) = (self.use_of(key), self.expr(Text, 0));
        match self.random.below(8) {
            0 | 1 => format!("{used} {equals} {collection}[{key}]"),
            2 | 3 => format!("{collection}[{key}] {equals} {used}"),
            4 => {
                let pair = self.variable(Any);
                format!("{pair} := [{used}, {collection}[{key}]]; {pair}[0] {equals} {pair}[1]")
            }
            5 => {
                let pair = self.variable(Any);
                format!("{pair} := {{\"a\": {used}, \"b\": {collection}[{key}]}}; {pair}.b {equals} {value}")
            }
            6 => {
                let pattern = self.pick(&["[KEY, \"a\"]", "[KEY, _]", "{\"name\": KEY}", "[_, KEY]"]);
                format!("{} = {collection}[{key}]", pattern.replace("KEY", key))
            }
            _ => format!("{collection}[{used}] {equals} {collection}[{key}]"),
        }
    }

    /// A variable in a negation, `every` or a comprehension before, or after, the index that gives it values.
    fn used_before_index(&mut self, collection: &str, key: &str) -> String {
        let (other, value) = (self.pick(COLLECTIONS), self.expr(Text, 0));
        let using = match self.random.below(6) {
            0 => format!("not {other}[{key}]"),
            1 => format!("not {other}[{key}] == {value}"),
            2 => format!("not {key} in {other}"),
            3 => format!("not {}", self.use_of(key)),
            4 => {
                let list = self.variable(Any);
                format!("{list} := [{key} | {other}[{key}] == {value}]; count({list}) > 0")
            }
            _ => {
                let item = self.variable(Any);
                format!("every {item} in {other} {{ {item} != {key} }}")
            }
        };
        let binding = match self.random.below(4) {
            0 => format!("{key} = {value}"),
            1 => format!("{key} := {value}"),
            _ => format!("{collection}[{key}] == {value}"),
        };
        match self.random.chance(60) {
            true => format!("{using}; {binding}"),
            false => format!("{binding}; {using}"),
        }
    }

    fn object_in_rows(&mut self) -> String {
        let pattern = self.object_pattern();
        let rows = self.pick(ROWS);
        match self.random.below(4) {
            0 => format!("{pattern} = {rows}[_]"),
            1 => format!("some {pattern} in {rows}"),
            2 => format!("{pattern} := {rows}[_]"),
            _ => format!(
                "{pattern} = {}",
                self.pick(&["input", "input.items[0]", "input.labels"])
            ),
        }
    }

    /// Comprehensions with variables that their surroundings may have, too.
    fn names_of_comprehension(&mut self, collection: &str, list: &str) -> String {
        let (name, value) = (self.name(), self.expr(Text, 0));
        match self.random.below(5) {
            0 => format!("{list} := [1 | some {name}; {collection}[{name}] == {value}]; count({list}) > 0"),
            1 => format!("{list} := [{name} | {name} = {collection}[_]]; count({list}) > 1"),
            2 => format!("{list} := {{{name}: {collection}[{name}] | some {name}}}; count({list}) > 0"),
            3 => format!("{list} := [{collection}[{name}] | some {name}]; {value} in {list}"),
            _ => {
                let (item, number) = (self.variable(Any), self.expr(Number, 0));
                format!(
                    "{name} := {number}; {list} := [{item} | {item} := {collection}[_]; {name} := {item}; {name} != 1]"
                )
            }
        }
    }

    /// An index that is an array or an object with a variable in it.
    fn composite_index(&mut self, collection: &str, key: &str) -> String {
        let (pairs, item, source) = (self.name(), self.variable(Any), self.pick(COLLECTIONS));
        let pair = self.pick(&["[ITEM, \"read\"]", "{\"a\": ITEM}", "[ITEM, _]", "[_, ITEM]"]);
        let pair = pair.replace("ITEM", &item);
        let found = match self.random.chance(50) {
            true => format!("every {item} in {collection} {{ {pairs}[{pair}] }}"),
            false => format!("some {item} in {collection}; {pairs}[{pair}]"),
        };
        format!("{pairs} := {{[{key}, \"read\"] | some {key} in {source}}}; {found}")
    }

    fn two_variables(&mut self, collection: &str, key: &str) -> String {
        let (second, other) = (self.variable(Any), self.pick(COLLECTIONS));
        let (value, last) = (self.expr(Text, 0), self.expr(Text, 0));
        match self.random.below(5) {
            0 => format!("some {second}; {collection}[{key}] == {other}[{second}]"),
            1 => format!("{key} = {second}; {second} = {value}"),
            2 => format!("[{key}, {key}] = [{second}, {value}]; {second} = {last}"),
            3 => format!("{collection}[{key}] == {other}[{key}]; {second} := {key}"),
            _ => format!("{collection}[{key}][{second}] == {value}"),
        }
    }

    /// A call with one argument more than the function has.
    fn output_argument(&mut self, collection: &str, key: &str) -> String {
        let function = self.pick(&["lower", "upper", "count", "to_number"]);
        let (item, value) = (self.variable(Any), self.expr(Text, 0));
        match self.random.below(3) {
            0 => format!("{function}({value}, {key}); {key} != {value}"),
            1 => format!("every {item} in {collection} {{ {function}({item}, {item}) }}"),
            _ => format!("not {function}({value}, {key})"),
        }
    }

    /// An expression that needs the value of a variable.
    fn use_of(&mut self, variable: &str) -> String {
        let collection = self.pick(COLLECTIONS);
        let function = self.rules.iter().find(|rule| rule.arity == Some(1)).cloned();
        match self.random.below(10) {
            0 => format!("lower({variable})"),
            1 => format!("count({variable})"),
            2 => format!("{variable} + 1"),
            3 => format!("[{variable}]"),
            4 => format!("sprintf(\"%v\", [{variable}])"),
            5 => format!("{collection}[{variable}]"),
            6 => format!("[x | x := {collection}[{variable}]]"),
            7 => format!("count({{1 | {collection}[{variable}] != 7}})"),
            8 if let Some(function) = function => format!("{}({variable})", function.path(self.file)),
            _ => variable.to_owned(),
        }
    }

    /// A pattern of some of an item's fields.
    pub(super) fn object_pattern(&mut self) -> String {
        let amount = 1 + self.random.below(3);
        let first = self.random.below(FIELDS.len());
        let mut fields = Vec::new();
        for field in FIELDS.iter().cycle().skip(first).take(amount) {
            let value = match self.random.below(6) {
                0 => "_".to_owned(),
                1 => self.literal(Text),
                2 => self.known(Any).unwrap_or_else(|| "_".to_owned()),
                _ => self.variable(Any),
            };
            fields.push(format!("\"{field}\": {value}"));
        }
        format!("{{{}}}", fields.join(", "))
    }

    /// A part of a head that has no value for some solutions of its body.
    fn part_of_row(&mut self, row: &str) -> String {
        let field = self.pick(FIELDS);
        match self.random.below(8) {
            0 => format!("data.limits[{row}]"),
            1 => format!("data.teams[{row}.name]"),
            2 => format!("[{row}.{field}]"),
            3 => format!("sprintf(\"%v\", [{row}.{field}])"),
            4 => format!("{{\"a\": {row}.{field}}}"),
            5 => format!("[x | x := {row}.{field}]"),
            _ => format!("{row}.{field}"),
        }
    }

    /// Adds the definitions of one rule. Returns its type.
    pub(super) fn unusual_rule(&mut self, name: &str, definitions: usize, rules: &mut Vec<Rule>) -> Type {
        let form = self.random.below(8);
        if form == 6 && self.random.chance(50) {
            let key = self.pick(&[".x", "[\"x\"]", "[`x`]"]);
            let value = self.literal(Text);
            rules.push(Self::simple(format!("default {name}{key} := {value}"), Vec::new()));
        }
        for _ in 0..definitions {
            self.variables.clear();
            let (row, key) = (self.variable(Any), self.variable(Any));
            let mut body = vec![
                format!("some {row} in {}", self.pick(ROWS)),
                match self.random.chance(40) {
                    true => format!("some {key} in {}", self.pick(COLLECTIONS)),
                    false => format!("{key} := {}", self.expr(Text, 1)),
                },
            ];
            if self.random.chance(50) {
                body.push(self.statement(1));
            }
            let value = self.part_of_row(&row);
            let mut otherwise = Vec::new();
            let head = match form {
                0 => format!("{name} contains {value}"),
                1 => format!("{name}[{key}] := {value}"),
                2 => format!("{name}[{key}].q := {value}"),
                3 => format!("{name}[{key}] contains {value}"),
                4 => format!("{name}[{key}][{row}.name] := {value}"),
                5 => format!("{name} contains [{key}, \"read\"]"),
                6 => format!("{name}{} := {value}", self.pick(&[".x", "[\"x\"]", ".x.y", "[`x`]"])),
                _ => {
                    self.variables.clear();
                    let value_otherwise = self.pick(&["false", "\"none\"", "", "data.limits[input.verb]"]);
                    otherwise.push((value_otherwise, self.body_of_rule()));
                    format!("{name} := {value}")
                }
            };
            rules.push(Rule {
                head,
                body,
                otherwise,
                ..Rule::default()
            });
        }
        match form {
            0 | 5 => Set,
            7 => Text,
            _ => Object,
        }
    }
}
