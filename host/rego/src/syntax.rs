//! What the checks of a bundle's modules share: the parts of an expression, the steps of a
//! reference, and the paths of rules.

use std::collections::BTreeMap;

use regorus::unstable::{Expr, ExprRef, Import, Literal, Module, Query, Rule, RuleBody, RuleHead, Span};

use tollgate_core::diagnostic::Location;

/// The names on the path from `data` to a rule.
pub(crate) type Path = Vec<String>;

pub(crate) fn location(span: &Span) -> Location {
    Location {
        file: span.source.get_path().as_str().into(),
        line: span.line,
        column: span.col,
    }
}

/// Where a reference starts. (The span of `a.b` is that of its last dot.)
pub(crate) fn start_of(expr: &Expr) -> Location {
    location(base(expr).span())
}

/// The direct parts of an expression, in order, without the name of a called function.
pub(crate) struct Parts<'a> {
    /// The heads of a comprehension, or all parts of another expression.
    pub(crate) exprs: Vec<&'a Expr>,
    pub(crate) query: Option<&'a Query>,
}

pub(crate) fn parts(expr: &Expr) -> Parts<'_> {
    let mut query = None;
    let exprs: Vec<&ExprRef> = match expr {
        Expr::String { .. }
        | Expr::RawString { .. }
        | Expr::Number { .. }
        | Expr::Bool { .. }
        | Expr::Null { .. }
        | Expr::Var { .. } => Vec::new(),
        Expr::Array { items, .. } | Expr::Set { items, .. } => items.iter().collect(),
        Expr::Object { fields, .. } => fields.iter().flat_map(|(_, key, value)| [key, value]).collect(),
        Expr::ArrayCompr { term, query: own, .. } | Expr::SetCompr { term, query: own, .. } => {
            query = Some(&**own);
            vec![term]
        }
        Expr::ObjectCompr {
            key, value, query: own, ..
        } => {
            query = Some(&**own);
            vec![key, value]
        }
        Expr::Call { params, .. } => params.iter().collect(),
        Expr::UnaryExpr { expr, .. } | Expr::RefDot { refr: expr, .. } => vec![expr],
        Expr::RefBrack { refr, index, .. } => vec![refr, index],
        Expr::BinExpr { lhs, rhs, .. }
        | Expr::BoolExpr { lhs, rhs, .. }
        | Expr::ArithExpr { lhs, rhs, .. }
        | Expr::AssignExpr { lhs, rhs, .. } => vec![lhs, rhs],
        Expr::Membership {
            key, value, collection, ..
        } => key.iter().chain([value, collection]).collect(),
    };
    Parts {
        exprs: exprs.into_iter().map(|expr| &**expr).collect(),
        query,
    }
}

/// The expression that a statement evaluates, without patterns and the body of `every`.
pub(crate) fn evaluated(statement: &Literal) -> Option<&Expr> {
    match statement {
        Literal::SomeVars { .. } => None,
        Literal::SomeIn { collection: expr, .. }
        | Literal::Expr { expr, .. }
        | Literal::NotExpr { expr, .. }
        | Literal::Every { domain: expr, .. } => Some(expr),
    }
}

/// One step of a reference after its first name.
#[derive(Clone, Copy)]
pub(crate) enum Step<'a> {
    /// `.key` or `["key"]`.
    Fixed(&'a str),
    /// `[expression]`.
    Index(&'a Expr),
}

impl<'a> Step<'a> {
    pub(crate) fn fixed(&self) -> Option<&'a str> {
        match self {
            Self::Fixed(text) => Some(text),
            Self::Index(_) => None,
        }
    }

    pub(crate) fn index(&self) -> Option<&'a Expr> {
        match self {
            Self::Fixed(_) => None,
            Self::Index(index) => Some(index),
        }
    }
}

pub(crate) fn steps(expr: &Expr) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    let mut expr = expr;
    loop {
        expr = match expr {
            Expr::RefDot {
                refr, field: (span, _), ..
            } => {
                steps.push(Step::Fixed(span.text()));
                refr
            }
            Expr::RefBrack { refr, index, .. } => {
                steps.push(text(index).map_or(Step::Index(index), Step::Fixed));
                refr
            }
            _ => break,
        };
    }
    steps.reverse();
    steps
}

/// The expression that a reference indexes: a name, or else such as in `f(x).y` and `[1, 2][i]`.
pub(crate) fn base(expr: &Expr) -> &Expr {
    let mut expr = expr;
    while let Expr::RefDot { refr, .. } | Expr::RefBrack { refr, .. } = expr {
        expr = refr;
    }
    expr
}

/// The fixed start of a reference to a name.
pub(crate) fn fixed_start(expr: &Expr) -> Option<Path> {
    let Expr::Var { span, .. } = base(expr) else {
        return None;
    };
    let steps = steps(expr);
    let fixed = steps.iter().map_while(Step::fixed);
    Some(std::iter::once(span.text()).chain(fixed).map(str::to_owned).collect())
}

/// The same as a text, such as `object.get`; empty if it does not start with a name.
pub(crate) fn dotted(expr: &Expr) -> String {
    fixed_start(expr).unwrap_or_default().join(".")
}

pub(crate) fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::String { value, .. } | Expr::RawString { value, .. } => value.as_string().ok().map(AsRef::as_ref),
        _ => None,
    }
}

/// The name of a rule, its arguments, and its value or, for a set, the item that it adds.
pub(crate) fn head_parts(head: &RuleHead) -> (&Expr, &[ExprRef], Option<&Expr>) {
    let (refr, args, value) = match head {
        RuleHead::Compr { refr, assign, .. } => (refr, &[][..], assign.as_ref().map(|assign| &assign.value)),
        RuleHead::Set { refr, key, .. } => (refr, &[][..], key.as_ref()),
        RuleHead::Func { refr, args, assign, .. } => (refr, &**args, assign.as_ref().map(|assign| &assign.value)),
    };
    (refr, args, value.map(|value| &**value))
}

/// The value that a body gives: that of its `else`, or of the head.
pub(crate) fn value_of<'a>(body: &'a RuleBody, head: Option<&'a Expr>) -> Option<&'a Expr> {
    match body.is_else {
        true => body.assign.as_ref().map(|assign| &*assign.value),
        false => head,
    }
}

pub(crate) fn head_of(rule: &Rule) -> &Expr {
    match rule {
        Rule::Spec { head, .. } => head_parts(head).0,
        Rule::Default { refr, .. } => refr,
    }
}

pub(crate) fn arity(rule: &Rule) -> Option<usize> {
    match rule {
        Rule::Spec {
            head: RuleHead::Func { args, .. },
            ..
        } => Some(args.len()),
        Rule::Spec { .. } | Rule::Default { .. } => None,
    }
}

pub(crate) fn package(module: &Module) -> Path {
    fixed_start(&module.package.refr).unwrap_or_default()
}

/// The name that an import declares, and its full path including `data` or `input`.
pub(crate) fn import(import: &Import) -> Option<(String, Path)> {
    let path = fixed_start(&import.refr)?;
    let alias = import.r#as.as_ref().map(|span| span.text().to_owned());
    Some((alias.or_else(|| path.last().cloned())?, path))
}

/// What each package imports, by name. As in regorus, an import of one file holds in all files of
/// its package.
pub(crate) fn imports(modules: &[Module]) -> BTreeMap<Path, BTreeMap<String, Path>> {
    let mut packages = BTreeMap::<_, BTreeMap<_, _>>::new();
    for module in modules {
        let names = packages.entry(package(module)).or_default();
        for (name, path) in module.imports.iter().filter_map(import) {
            names.entry(name).or_insert(path);
        }
    }
    packages
}

pub(crate) fn rule_path(package: &[String], rule: &Rule) -> Path {
    let head = fixed_start(head_of(rule)).unwrap_or_default();
    package.iter().cloned().chain(head).collect()
}

/// The rules at `path` and below it.
pub(crate) fn rules_below<'r, T>(
    rules: &'r BTreeMap<Path, T>,
    path: &'r [String],
) -> impl Iterator<Item = (&'r Path, &'r T)> {
    let from = rules.range(path.to_vec()..);
    from.take_while(move |(rule, _)| rule.starts_with(path))
}

/// The path below `data` that a name refers to in a module, if it is not a variable. `import`
/// returns the full path that a name is imported for.
pub(crate) fn resolve<'a>(
    package: &[String],
    import: impl Fn(&str) -> Option<&'a Path>,
    path: &[String],
) -> Option<Path> {
    let (first, rest) = path.split_first()?;
    if first == "data" {
        return Some(rest.to_vec());
    }
    if let Some(import) = import(first) {
        return Some(import.iter().skip(1).chain(rest).cloned().collect());
    }
    (first != "input").then(|| package.iter().chain(path).cloned().collect())
}
