//! Draws policies from a grammar of the language. Most expressions have the type that their place
//! expects; some have another.

use serde_json::Value;

use super::functions::{self, Argument, FUNCTIONS};
use super::inputs::{self, word};
use super::{Case, File, Rule};
use crate::differential::random::Random;

mod unusual;

const INPUTS: usize = 20;
/// How many of a hundred policies have unusual constructs. The gateway refuses many of them, and the
/// others have to be compared, too.
const UNUSUAL: usize = 40;
/// How many of a hundred policies call one function.
const CALLS: usize = 12;
/// How often a rule is drawn until the gateway accepts it.
const DRAWS: usize = 5;
/// How many of a hundred rules are kept although the gateway may refuse them.
const REFUSED: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Any,
    Bool,
    Number,
    Nanoseconds,
    Text,
    Time,
    Version,
    TextArray,
    NumberArray,
    /// What `concat` takes: a short array, or a set comprehension.
    TextList,
    /// What `sprintf` takes: an array literal.
    Arguments,
    Set,
    /// A set or an array of sets.
    Sets,
    Object,
    /// An array of objects with `name`, `size` and `tags`.
    Items,
    /// Paths of `json.filter`.
    Paths,
}

use Type::{
    Any, Arguments, Bool, Items, Nanoseconds, Number, NumberArray, Object, Paths, Set, Sets, Text, TextArray, TextList,
    Time, Version,
};

const COMMON: &[Type] = &[Bool, Number, Text, TextArray, Set, Object];

/// A rule that later rules can use.
#[derive(Clone, Debug)]
struct Declared {
    name: String,
    file: File,
    /// Number of arguments of a function.
    arity: Option<usize>,
    gives: Type,
}

/// The variables of a body, and what is outside of it.
struct Scope<'a> {
    random: &'a mut Random,
    rules: &'a [Declared],
    variables: Vec<(String, Type)>,
    /// Number of variables in the whole policy, as each has its own name in most policies.
    names: &'a mut usize,
    /// Whether unusual constructs are drawn, too.
    is_unusual: bool,
    file: File,
}

/// A policy in the making.
struct Draft<'a> {
    random: &'a mut Random,
    case: Case,
    declared: Vec<Declared>,
    names: usize,
    is_unusual: bool,
}

pub(super) fn case(random: &mut Random) -> Case {
    if random.chance(CALLS) {
        return call(random);
    }
    let is_unusual = random.chance(UNUSUAL);
    let files = match is_unusual && random.chance(30) {
        true => File::ALL,
        false => &[File::Policy],
    };
    let mut case = Case {
        tables: inputs::data(random).into_iter().collect(),
        requests: (0..INPUTS).map(|_| inputs::input(random)).collect(),
        ..Case::default()
    };
    if is_unusual && random.chance(20) {
        case.imports = unusual::imports(random, files);
    }
    let mut draft = Draft {
        random,
        case,
        declared: Vec::new(),
        names: 0,
        is_unusual,
    };
    for at in 0..=draft.random.below(4) {
        let file = draft.random.pick(files);
        let name = format!("r{at}");
        draft.add(file, |scope, rules| Some(scope.rule(&name, rules)));
    }
    let form = draft.random.below(5);
    draft.add(File::Policy, |scope, rules| scope.allow(form, rules));
    for _ in 0..=draft.random.below(2) {
        draft.add(File::Policy, |scope, rules| scope.denied(rules));
        draft.add(File::Policy, |scope, rules| scope.denials(rules));
    }
    draft.case
}

/// A call of one function with arguments from the input.
fn call(random: &mut Random) -> Case {
    let (name, arguments, _) = random.pick(FUNCTIONS);
    let field = |at: usize| format!("argument{at}");
    let texts: Vec<String> = arguments
        .iter()
        .enumerate()
        .map(|(at, argument)| match argument {
            Argument::Literal(literals) if *literals != functions::PATHS => random.pick(literals).to_owned(),
            Argument::Of(Set) => format!("{{x | some x in input.{}}}", field(at)),
            Argument::Of(Sets) => format!("{{{{y | some y in x}} | some x in input.{}}}", field(at)),
            _ => format!("input.{}", field(at)),
        })
        .collect();
    let request = |random: &mut Random| {
        let mut input = inputs::input(random);
        for (at, argument) in arguments.iter().enumerate() {
            let gives = match argument {
                Argument::Literal(_) => Type::Paths,
                Argument::Of(gives) => *gives,
            };
            input[field(at)] = inputs::of_type(random, gives);
        }
        input
    };
    Case {
        policy: vec![
            Scope::simple(format!("r0 := {name}({})", texts.join(", ")), Vec::new()),
            Scope::simple("allow".to_owned(), vec!["r0 != 7".to_owned()]),
        ],
        reported: vec!["r0".to_owned()],
        tables: inputs::data(random).into_iter().collect(),
        requests: (0..INPUTS).map(|_| request(random)).collect(),
        ..Case::default()
    }
}

impl Draft<'_> {
    /// Adds what `draw` draws. Most of what the gateway refuses is drawn again, so that not nearly all
    /// policies are refused for one of their rules.
    fn add(&mut self, file: File, draw: impl Fn(&mut Scope<'_>, &mut Vec<Rule>) -> Option<Declared>) {
        let (before, reported) = (self.case.policy.len(), self.case.reported.len());
        for _ in 0..DRAWS {
            let mut scope = Scope {
                random: self.random,
                rules: &self.declared,
                variables: Vec::new(),
                names: &mut self.names,
                is_unusual: self.is_unusual,
                file,
            };
            let new = draw(&mut scope, &mut self.case.policy);
            for rule in &mut self.case.policy[before..] {
                rule.file = match file {
                    // Definitions of one rule in both files of a package.
                    File::Second if self.random.chance(20) => File::Policy,
                    file => file,
                };
            }
            // What no decision needs is not always refused.
            let value = new.iter().find(|new| new.arity.is_none());
            self.case.reported.extend(value.map(|new| new.path(File::Policy)));
            if self.random.chance(REFUSED) || self.case.is_accepted() {
                self.declared.extend(new);
                return;
            }
            self.case.policy.truncate(before);
            self.case.reported.truncate(reported);
        }
    }
}

impl Declared {
    /// Its name in a file.
    fn path(&self, file: File) -> String {
        match self.file.package() == file.package() {
            true => self.name.clone(),
            false => format!("data.{}.{}", self.file.package(), self.name),
        }
    }
}

impl Scope<'_> {
    fn pick(&mut self, list: &[&str]) -> String {
        self.random.pick(list).to_owned()
    }

    fn variable(&mut self, gives: Type) -> String {
        let name = self.name();
        self.variables.push((name.clone(), gives));
        name
    }

    fn name(&mut self) -> String {
        if self.is_unusual && self.random.chance(5) {
            return self.name_of_something_else();
        }
        *self.names += 1;
        format!("v{}", self.names)
    }

    fn simple(head: String, body: Vec<String>) -> Rule {
        Rule {
            head,
            body,
            ..Rule::default()
        }
    }

    fn allow(&mut self, form: usize, rules: &mut Vec<Rule>) -> Option<Declared> {
        let mut body = match form {
            0 | 1 => vec!["not denied".to_owned()],
            _ => self.body_up_to(2),
        };
        if form > 2 {
            body.push(self.pick(&["not denied", "count(denials) == 0"]));
        }
        rules.push(Self::simple("allow".to_owned(), body));
        None
    }

    fn denied(&mut self, rules: &mut Vec<Rule>) -> Option<Declared> {
        let body = self.body_up_to(3);
        rules.push(Self::simple("denied".to_owned(), body));
        None
    }

    fn denials(&mut self, rules: &mut Vec<Rule>) -> Option<Declared> {
        let body = self.body_up_to(2);
        let value = self.expr(Text, 1);
        rules.push(Self::simple(format!("denials contains {value}"), body));
        None
    }

    /// At least one statement.
    fn body_up_to(&mut self, most: usize) -> Vec<String> {
        let statements = 1 + self.random.below(most);
        self.body(statements)
    }

    fn body(&mut self, statements: usize) -> Vec<String> {
        (0..statements).map(|_| self.statement(2)).collect()
    }

    /// Adds the definitions of one rule.
    fn rule(&mut self, name: &str, rules: &mut Vec<Rule>) -> Declared {
        let gives = self.random.pick(COMMON);
        let mut declared = Declared {
            name: name.to_owned(),
            file: self.file,
            arity: None,
            gives,
        };
        let definitions = 1 + self.random.below(3);
        if self.is_unusual && self.random.chance(15) {
            declared.gives = self.unusual_rule(name, definitions, rules);
            return declared;
        }
        match self.random.below(10) {
            0 | 1 => {
                // A complete rule.
                if self.random.chance(50) {
                    let value = self.literal(gives);
                    rules.push(Self::simple(format!("default {name} := {value}"), Vec::new()));
                }
                for _ in 0..definitions {
                    self.variables.clear();
                    let mut rule = Rule {
                        body: self.body_of_rule(),
                        ..Rule::default()
                    };
                    rule.head = format!("{name} := {}", self.expr(gives, 2));
                    for _ in 0..self.random.below(3) {
                        self.variables.clear();
                        let body = self.body_of_rule();
                        rule.otherwise.push((self.expr(gives, 2), body));
                    }
                    // Without a body there is no `else`.
                    if rule.body.is_empty() {
                        rule.otherwise.clear();
                    }
                    rules.push(rule);
                }
            }
            2 => {
                // A boolean rule.
                declared.gives = Bool;
                for _ in 0..definitions {
                    self.variables.clear();
                    let body = self.body_up_to(3);
                    rules.push(Self::simple(name.to_owned(), body));
                }
            }
            3 | 4 => {
                declared.gives = Set;
                for _ in 0..definitions {
                    self.variables.clear();
                    let body = self.body_of_rule();
                    let value = self.element(2);
                    rules.push(Self::simple(format!("{name} contains {value}"), body));
                }
            }
            5 => {
                declared.gives = Object;
                for _ in 0..definitions {
                    self.variables.clear();
                    let body = self.body_of_rule();
                    let (key, value) = (self.expr(Text, 1), self.expr(Any, 2));
                    rules.push(Self::simple(format!("{name}[{key}] := {value}"), body));
                }
            }
            6 => {
                // A reference as a head.
                declared.gives = Object;
                for _ in 0..definitions {
                    self.variables.clear();
                    let body = self.body_of_rule();
                    let key = self.pick(&["x", "y", "x.z"]);
                    let head = match self.random.below(3) {
                        0 => format!("{name}.{key} contains {}", self.expr(Text, 1)),
                        1 => format!("{name}.{key} := {}", self.expr(gives, 1)),
                        _ => {
                            let index = self.expr(Text, 1);
                            format!("{name}.w[{index}] := {}", self.expr(gives, 1))
                        }
                    };
                    rules.push(Self::simple(head, body));
                }
            }
            _ => self.function(&mut declared, definitions, rules),
        }
        declared
    }

    fn function(&mut self, declared: &mut Declared, definitions: usize, rules: &mut Vec<Rule>) {
        let arity = 1 + self.random.below(2);
        declared.arity = Some(arity);
        let name = &declared.name;
        if self.random.chance(20) {
            let wildcards = vec!["_"; arity].join(", ");
            let value = self.literal(declared.gives);
            rules.push(Self::simple(
                format!("default {name}({wildcards}) := {value}"),
                Vec::new(),
            ));
        }
        for _ in 0..definitions {
            self.variables.clear();
            let arguments: Vec<String> = (0..arity).map(|_| self.parameter()).collect();
            let arguments = arguments.join(", ");
            let own = self.variables.len();
            let mut rule = Rule {
                body: self.body_of_rule(),
                ..Rule::default()
            };
            rule.head = match self.random.below(5) {
                0 if !rule.body.is_empty() => format!("{name}({arguments})"),
                _ => format!("{name}({arguments}) := {}", self.expr(declared.gives, 2)),
            };
            for _ in 0..self.random.below(2) {
                self.variables.truncate(own);
                let body = self.body_of_rule();
                let value = match self.is_unusual && self.random.chance(30) {
                    true => self.pick(&["input.missing", "data.limits[input.verb]", "input.labels.team"]),
                    false => self.expr(declared.gives, 2),
                };
                rule.otherwise.push((value, body));
            }
            if rule.body.is_empty() {
                rule.otherwise.clear();
            }
            rules.push(rule);
        }
    }

    fn parameter(&mut self) -> String {
        match self.random.below(8) {
            0 if self.is_unusual && self.random.chance(30) => self.object_pattern(),
            0 => self.literal(Text),
            1 => {
                let (one, other) = (self.variable(Text), self.variable(Text));
                format!("[{one}, {other}]")
            }
            2 => "_".to_owned(),
            _ => {
                let gives = self.random.pick(COMMON);
                self.variable(gives)
            }
        }
    }

    fn body_of_rule(&mut self) -> Vec<String> {
        let statements = self.random.below(4);
        self.body(statements)
    }

    fn statement(&mut self, depth: usize) -> String {
        if self.is_unusual && self.random.chance(8) {
            return self.unusual_statement(depth);
        }
        match self.random.below(24) {
            0 if self.random.chance(25) => {
                let list = self.expr(TextArray, depth);
                format!("array.flatten({list}, {})", self.variable(TextArray))
            }
            0..=2 => {
                let gives = self.any_type();
                let value = self.expr(gives, depth);
                format!("{} := {value}", self.variable(gives))
            }
            3 => {
                let (collection, item) = self.collection(depth);
                let value = self.variable(item);
                format!("some {value} in {collection}; {value} != null")
            }
            4 => {
                let (collection, item) = self.collection(depth);
                let (key, value) = (self.variable(Any), self.variable(item));
                // A declared variable must be used.
                format!("some {key}, {value} in {collection}; [{key}, {value}] != 0")
            }
            5 => {
                let gives = self.any_type();
                let value = self.member(gives);
                let (collection, _) = self.collection(depth);
                format!("{value} in {collection}")
            }
            6 => {
                let (key, value) = (self.member(Text), self.member(Text));
                let (collection, _) = self.collection(depth);
                format!("{key}, {value} in {collection}")
            }
            7 if depth > 0 => format!("not {}", self.closed(depth - 1)),
            8 if depth > 0 => self.negation(depth - 1),
            9 | 10 if depth > 0 => self.every(depth - 1),
            11 if self.random.chance(25) => self.position(),
            11 => {
                let collection = self.reference(TextArray);
                let index = if self.random.chance(50) {
                    "_".to_owned()
                } else {
                    self.variable(Number)
                };
                format!("{} := {collection}[{index}]", self.variable(Text))
            }
            12 => {
                let collection = self.reference(Object);
                let value = self.expr(Text, 1);
                let name = self.variable(Any);
                format!("some {name}; {collection}[{name}] == {value}")
            }
            13 => {
                let gives = self.any_type();
                let (one, other) = (self.expr(gives, 1), self.expr(gives, depth));
                format!("{one} = {other}")
            }
            14 => {
                let list = self.expr(TextArray, depth);
                let (one, other) = (self.variable(Text), self.variable(Text));
                let equals = self.pick(&[":=", "="]);
                format!("[{one}, {other}] {equals} {list}")
            }
            15 => {
                let object = self.expr(Items, depth);
                let name = self.variable(Text);
                format!("{{\"name\": {name}, \"size\": _, \"tags\": _}} = {object}[_]")
            }
            16 if self.random.chance(10) => "input.user == \"alice\" with input.user as \"alice\"".to_owned(),
            16 | 17 => {
                let gives = self.any_type();
                self.expr(gives, depth)
            }
            _ => self.condition(depth),
        }
    }

    /// An item of a list of data, by a position from somewhere.
    fn position(&mut self) -> String {
        let lists = [
            "data.names",
            "data.names",
            "data.teams.blue",
            "data.rows[_]",
            "data.teams[_]",
        ];
        let (list, other) = (self.pick(&lists), self.pick(&lists));
        let sources = [
            "[0, 1]",
            "{2, \"a\"}",
            "[input.replicas, 0]",
            "numbers.range(0, 2)",
            "data.order",
            "data.names",
            "data.rows[0]",
            "input.sizes",
            "{\"0\": 1, \"b\": \"0\"}",
        ];
        let source = self.pick(&sources);
        let (position, key) = (self.name(), self.name());
        let value = self.variable(Text);
        match self.random.below(8) {
            0 => format!("some {position} in {source}; {value} := {list}[{position}]"),
            1 => format!("some {position}, {key} in {source}; {value} := {list}[{position}]; {key} != 7"),
            2 => format!("{value} := {list}[{position}]; {source}[{position}] != 7"),
            3 => format!("{value} := {list}[{position}]; {other}[{position}] != {value}"),
            4 => {
                let literal = self.pick(&["0", "1", "[0]", "{1}", "null", "true", "1.5", "-1", "\"a\"", "\"0\""]);
                format!("{value} = {list}[{position}]; {position} = {literal}")
            }
            5 => {
                let index = self.pick(&["[0]", "{1}", "null", "true", "1.5", "-1", "count(input.groups)"]);
                format!("{value} := {list}[{index}]")
            }
            6 => format!("{value} := {list}[{}]", self.expr(Number, 1)),
            _ => format!("{position} := {source}[_]; {value} := {list}[{position}]"),
        }
    }

    /// A statement without new variables for what follows it.
    fn closed(&mut self, depth: usize) -> String {
        let before = self.variables.clone();
        let statement = match self.random.below(6) {
            0 => {
                let gives = self.any_type();
                self.expr(gives, depth)
            }
            1 => {
                let gives = self.any_type();
                let value = self.member(gives);
                let (collection, _) = self.collection(depth);
                format!("{value} in {collection}")
            }
            _ => self.condition(depth),
        };
        self.variables = before;
        statement
    }

    /// A negation whose parts have a name, as the gateway refuses others.
    fn negation(&mut self, depth: usize) -> String {
        let gives = self.any_type();
        let (one, other) = (self.expr(gives, depth), self.expr(gives, depth));
        let (first, second) = (self.variable(gives), self.variable(gives));
        let negated = match self.random.below(4) {
            0 => format!("{first} in [{second}]"),
            1 => format!("{first} in {second}"),
            _ => format!("{first} {} {second}", self.pick(&["==", "!=", "<", ">=", ">", "<="])),
        };
        format!("{first} := {one}; {second} := {other}; not {negated}")
    }

    fn every(&mut self, depth: usize) -> String {
        let (collection, item) = self.collection(depth);
        let before = self.variables.clone();
        let key = self.random.chance(40).then(|| self.variable(Any));
        let key = key.map_or_else(String::new, |key| format!("{key}, "));
        let value = self.variable(item);
        let mut statements = vec![format!("[{key}{value}] {} [1]", self.pick(&["!=", ">=", ">"]))];
        if self.random.chance(70) {
            let other = self.expr(item, 1);
            statements.push(format!("{value} {} {other}", self.pick(&["!=", "==", ">=", "<"])));
        }
        statements.extend((0..self.random.below(2)).map(|_| self.statement(depth)));
        self.variables = before;
        format!("every {key}{value} in {collection} {{ {} }}", statements.join("; "))
    }

    fn condition(&mut self, depth: usize) -> String {
        let gives = self.any_type();
        match self.random.below(5) {
            0 => self.expr(Bool, depth),
            1 => {
                let (one, other) = (self.expr(Any, depth), self.untyped());
                format!("{one} {} {other}", self.pick(&["<", "<=", ">", ">=", "==", "!="]))
            }
            _ => {
                let (one, other) = (self.expr(gives, depth), self.expr(gives, 1));
                format!("{one} {} {other}", self.pick(&["==", "!=", "<", ">=", "==", ">", "<="]))
            }
        }
    }

    /// What is looked for in a collection: mostly a literal or a variable, as the gateway refuses others.
    fn member(&mut self, gives: Type) -> String {
        match self.known(gives) {
            Some(variable) if self.random.chance(60) => variable,
            _ if self.random.chance(80) => self.literal(gives),
            _ => self.expr(gives, 1),
        }
    }

    fn any_type(&mut self) -> Type {
        self.random.pick(COMMON)
    }

    /// A collection, and the type of its items.
    fn collection(&mut self, depth: usize) -> (String, Type) {
        let (gives, item) = self.random.pick(&[
            (TextArray, Text),
            (TextArray, Text),
            (NumberArray, Number),
            (Set, Any),
            (Object, Text),
            (Items, Object),
            (Any, Any),
        ]);
        (self.expr(gives, depth), item)
    }

    /// An element of a set.
    fn element(&mut self, depth: usize) -> String {
        let gives = self.any_type();
        self.expr(gives, depth)
    }

    fn expr(&mut self, gives: Type, depth: usize) -> String {
        // Now and then it has another type.
        let gives = match gives {
            Arguments | TextList => return self.list(gives, depth),
            _ if self.random.chance(6) => return self.untyped(),
            Any => self
                .random
                .pick(&[Number, Text, Text, TextArray, Set, Object, Bool, Time]),
            gives => gives,
        };
        if self.random.chance(25)
            && let Some(variable) = self.known(gives)
        {
            return variable;
        }
        if self.random.chance(20)
            && let Some(rule) = self.use_rule(gives, depth)
        {
            return rule;
        }
        if depth == 0 || self.random.chance(25) {
            return if self.random.chance(60) {
                self.reference(gives)
            } else {
                self.literal(gives)
            };
        }
        match self.random.below(10) {
            0..=3 => self.call(gives, depth).unwrap_or_else(|| self.reference(gives)),
            4..=6 => self.operator(gives, depth),
            7 | 8 => self.comprehension(gives, depth),
            _ => self.reference(gives),
        }
    }

    /// An expression whose type OPA does not know before it is evaluated.
    fn untyped(&mut self) -> String {
        let gives = self.random.pick(&[Text, Number, Bool, TextArray, Object, Any, Items]);
        match self.reference(gives) {
            known if known.starts_with('[') => "input.sizes".to_owned(),
            reference => reference,
        }
    }

    fn known(&mut self, gives: Type) -> Option<String> {
        let known = self
            .variables
            .iter()
            .filter(|(_, known)| *known == gives || *known == Any);
        let known: Vec<String> = known.map(|(name, _)| name.clone()).collect();
        (!known.is_empty()).then(|| self.random.pick(&known))
    }

    fn use_rule(&mut self, gives: Type, depth: usize) -> Option<String> {
        let fitting: Vec<Declared> = self.rules.iter().filter(|rule| rule.gives == gives).cloned().collect();
        if gives == Any && self.random.chance(25) {
            let holding = self
                .rules
                .iter()
                .filter(|rule| rule.arity.is_none() && rule.gives != Bool);
            let holding: Vec<Declared> = holding.cloned().collect();
            if !holding.is_empty() {
                let rule = self.random.pick(&holding);
                let (package, name) = (rule.file.package(), rule.name);
                let index = self.pick(&["input.user", "input.replicas", "input.sizes[0]", "input.groups[0]"]);
                return Some(format!("data.{package}.{name}[{index}]"));
            }
        }
        if fitting.is_empty() {
            return None;
        }
        let rule = self.random.pick(&fitting);
        let Some(arity) = rule.arity else {
            if self.random.chance(15) {
                return Some(format!("data.{}.{}", rule.file.package(), rule.name));
            }
            return Some(rule.path(self.file));
        };
        let arguments: Vec<String> = (0..arity).map(|_| self.expr(Any, depth.saturating_sub(1))).collect();
        Some(format!("{}({})", rule.path(self.file), arguments.join(", ")))
    }

    fn reference(&mut self, gives: Type) -> String {
        if matches!(gives, Text | Any)
            && self.random.chance(2)
            && let Some(index) = self.known(Any)
        {
            let collection = self.pick(&["data.names", "data.limits", "data.teams", "data.rows[_]"]);
            return format!("{collection}[{index}]");
        }
        match gives {
            Text => self.pick(&[
                "input.user",
                "input.user",
                "input.verb",
                "input.labels.team",
                "input.labels[input.user]",
                "input.groups[0]",
                "input[\"user\"]",
                "data.names[0]",
                "input.items[0].name",
            ]),
            Number => self.pick(&[
                "input.replicas",
                "input.sizes[0]",
                "data.limits[input.verb]",
                "input.items[0].size",
                "input.sizes[1]",
            ]),
            Bool => self.pick(&["input.flag", "input.flag", "input.missing"]),
            TextArray => self.pick(&[
                "input.groups",
                "data.names",
                "data.teams.blue",
                "data.teams[input.user]",
            ]),
            NumberArray => self.pick(&["input.sizes", "[x | x := input.items[_].size]"]),
            Object => self.pick(&[
                "input.labels",
                "input.labels",
                "data.teams",
                "input.items[0]",
                "input",
                "data.limits",
            ]),
            Set => self.pick(&["{x | x := input.groups[_]}", "{x | some x in input.sizes}"]),
            Sets => "{{x | x := input.groups[_]}, {\"a\", \"blue\"}}".to_owned(),
            Items => "input.items".to_owned(),
            Paths => self.pick(functions::PATHS),
            Time => "input.time".to_owned(),
            Nanoseconds => "time.parse_rfc3339_ns(input.time)".to_owned(),
            Version => "input.version".to_owned(),
            Any => self.pick(&[
                "input.user",
                "input.replicas",
                "input.labels",
                "input.missing",
                "input",
                "data.limits[input.replicas]",
                "data.names[input.replicas]",
                "data.teams[input.user][input.sizes[0]]",
            ]),
            TextList | Arguments => self.list(gives, 1),
        }
    }

    fn literal(&mut self, gives: Type) -> String {
        match gives {
            Bool => self.pick(&["true", "false"]),
            Number => self.pick(&[
                "0",
                "1",
                "2",
                "-1",
                "2.5",
                "1e3",
                "10",
                "100",
                "0.1",
                "0.2",
                "0.3",
                "0.7",
                "3",
                "1.0",
                "0.25",
                "9007199254740993",
                "18446744073709551616",
                "0.30000000000000004",
                "0.30000000000000000001",
            ]),
            Nanoseconds => self.pick(&["0", "1796000000000000000", "-5", "1.5"]),
            Text | Any => Value::from(word(self.random)).to_string(),
            Time => self.pick(&["\"2026-11-29T15:30:00Z\"", "\"x\""]),
            Version => self.pick(&["\"1.2.3\"", "\"2.0.0-rc.1\"", "\"1.2\""]),
            TextArray => self.pick(&[
                "[]",
                "[\"blue\"]",
                "[\"a\", \"blue\", \"red\"]",
                "[\"alice\", \"admin\"]",
            ]),
            NumberArray => self.pick(&["[1, 2, 3]", "[]", "[2.5]", "[0.1, 0.2, 0.3]", "[0.1, 9007199254740993]"]),
            Set => self.pick(&["{\"blue\", \"red\"}", "{1, \"1\"}", "set()", "{\"a\"}"]),
            Sets => self.pick(&["[{1}, {1, 2}]", "{{1}, {2}}", "set()", "[]"]),
            Object => self.pick(&[
                "{}",
                "{\"team\": \"blue\"}",
                "{\"a\": 1, \"blue\": [2]}",
                "{1: \"x\", \"y\": null}",
            ]),
            Paths => self.pick(functions::PATHS),
            Items => self.pick(&["[]", "[{\"name\": \"a\", \"size\": 1, \"tags\": []}]"]),
            TextList | Arguments => self.list(gives, 1),
        }
    }

    fn list(&mut self, gives: Type, depth: usize) -> String {
        if gives == TextList {
            return match self.random.below(3) {
                0 => "input.groups".to_owned(),
                1 => self.comprehension(Set, depth.max(1)),
                _ => {
                    let items: Vec<String> = (0..self.random.below(3)).map(|_| self.expr(Text, 0)).collect();
                    format!("[{}]", items.join(", "))
                }
            };
        }
        let items: Vec<String> = (0..self.random.below(3))
            .map(|_| self.expr(Any, depth.saturating_sub(1)))
            .collect();
        format!("[{}]", items.join(", "))
    }

    fn call(&mut self, gives: Type, depth: usize) -> Option<String> {
        let fitting = FUNCTIONS
            .iter()
            .filter(|(_, _, result)| *result == gives || *result == Any);
        let fitting: Vec<_> = fitting.collect();
        if fitting.is_empty() {
            return None;
        }
        let (name, arguments, _) = *self.random.pick(&fitting);
        let arguments: Vec<String> = arguments
            .iter()
            .map(|argument| match argument {
                Argument::Of(Any) if !name.starts_with("is_") && name != "type_name" => self.untyped(),
                Argument::Of(gives) => self.expr(*gives, depth - 1),
                Argument::Literal(literals) => self.pick(literals),
            })
            .collect();
        Some(format!("{name}({})", arguments.join(", ")))
    }

    fn operator(&mut self, gives: Type, depth: usize) -> String {
        let below = depth - 1;
        match gives {
            Number => {
                let (one, other) = (self.expr(Number, below), self.expr(Number, below));
                format!("({one} {} {other})", self.pick(&["+", "-", "*", "/", "%"]))
            }
            Set => {
                let (one, other) = (self.expr(Set, below), self.expr(Set, below));
                format!("({one} {} {other})", self.pick(&["|", "&", "-"]))
            }
            Bool => {
                let gives = self.any_type();
                let (one, other) = (self.expr(gives, below), self.expr(gives, below));
                format!("({one} {} {other})", self.pick(&["==", "!=", "<", "<=", ">", ">="]))
            }
            TextArray => {
                let items: Vec<String> = (0..self.random.below(3)).map(|_| self.expr(Text, below)).collect();
                format!("[{}]", items.join(", "))
            }
            Object => {
                let (key, value) = (self.expr(Text, below), self.expr(Any, below));
                let (other, last) = (self.expr(Text, 0), self.expr(Any, below));
                format!("{{{key}: {value}, {other}: {last}}}")
            }
            gives => self.reference(gives),
        }
    }

    fn comprehension(&mut self, gives: Type, depth: usize) -> String {
        let before = self.variables.clone();
        let statements: Vec<String> = (0..=self.random.below(2)).map(|_| self.statement(depth - 1)).collect();
        let statements = statements.join("; ");
        let text = match gives {
            TextArray => format!("[{} | {statements}]", self.expr(Text, 0)),
            NumberArray => format!("[{} | {statements}]", self.expr(Number, 0)),
            Set => format!("{{{} | {statements}}}", self.element(0)),
            Object => {
                let (key, value) = (self.expr(Text, 0), self.expr(Any, 0));
                format!("{{{key}: {value} | {statements}}}")
            }
            Number => format!("count([{} | {statements}])", self.expr(Any, 0)),
            gives => {
                self.variables = before;
                return self.reference(gives);
            }
        };
        self.variables = before;
        text
    }
}
