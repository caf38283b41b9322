//! `graph.reachable` and `graph.reachable_paths`.

use std::collections::BTreeSet;

use regorus::Value;

use super::opa::MAX_RANGE;

/// Longest path that `graph.reachable_paths` follows.
pub(crate) const MAX_PATH: usize = 64;

/// The items of an array or set.
fn items(value: &Value) -> Option<Vec<&Value>> {
    match value {
        Value::Array(items) => Some(items.iter().collect()),
        Value::Set(items) => Some(items.iter().collect()),
        _ => None,
    }
}

pub(super) fn reachable(arguments: &[Value]) -> Option<Value> {
    let [Value::Object(graph), start] = arguments else {
        return None;
    };
    let mut open = items(start)?;
    let mut reached = BTreeSet::new();
    while let Some(node) = open.pop() {
        if let Some(edges) = graph.get(node)
            && reached.insert(node.clone())
        {
            // What is no list has no edges.
            open.extend(items(edges).unwrap_or_default());
        }
    }
    Some(Value::from(reached))
}

struct Paths<'a> {
    graph: &'a Value,
    found: BTreeSet<Value>,
    /// Nodes that may yet be visited.
    steps: i64,
}

impl<'a> Paths<'a> {
    fn edges(&self, node: &Value) -> Option<Vec<&'a Value>> {
        let Value::Object(graph) = self.graph else { return None };
        graph.get(node).map(|edges| items(edges).unwrap_or_default())
    }

    fn end(&mut self, path: &[&Value]) {
        let path: Vec<Value> = path.iter().map(|node| (*node).clone()).collect();
        self.found.insert(Value::from(path));
    }

    /// `None` for too many nodes.
    fn follow(&mut self, node: &'a Value, path: &mut Vec<&'a Value>) -> Option<()> {
        self.steps = self.steps.checked_sub(1).filter(|steps| *steps > 0)?;
        let Some(edges) = self.edges(node) else {
            self.end(path);
            return Some(());
        };
        if path.len() >= MAX_PATH {
            return None;
        }
        path.push(node);
        if edges.is_empty() {
            self.end(path);
        }
        for next in edges {
            if path.contains(&next) {
                self.end(path);
            } else {
                self.follow(next, path)?;
            }
        }
        path.pop();
        Some(())
    }
}

/// `None` also for more than [`MAX_RANGE`] steps or a path of more than [`MAX_PATH`] nodes.
pub(super) fn reachable_paths(arguments: &[Value]) -> Option<Value> {
    let [graph @ Value::Object(_), start] = arguments else {
        return None;
    };
    let mut paths = Paths {
        graph,
        found: BTreeSet::new(),
        steps: MAX_RANGE,
    };
    for node in items(start)? {
        let Some(edges) = paths.edges(node) else { continue };
        if edges.is_empty() {
            paths.end(&[node]);
        }
        for next in edges {
            // An edge to the start itself is followed once.
            paths.follow(next, &mut vec![node])?;
        }
    }
    Some(Value::from(paths.found))
}

#[cfg(test)]
mod tests {
    use regorus::Value;
    use serde_json::json;

    use super::{MAX_PATH, reachable, reachable_paths};

    /// Each node has edges to the next ones.
    fn paths(nodes: usize, edges: usize) -> Option<Value> {
        let name = |node: usize| format!("{node:03}");
        let entries = (0..nodes).map(|node| {
            let next = (node + 1..nodes).take(edges).map(name);
            (name(node), json!(next.collect::<Vec<_>>()))
        });
        let graph: serde_json::Map<_, _> = entries.collect();
        let arguments = [Value::from(json!(graph)), Value::from(json!([name(0)]))];
        let Some(Value::Set(reached)) = reachable(&arguments) else {
            panic!("not a set");
        };
        assert_eq!(reached.len(), nodes);
        reachable_paths(&arguments)
    }

    #[test]
    fn paths_are_bounded() {
        for (nodes, edges, is_known) in [
            (MAX_PATH, 1, true),
            (MAX_PATH + 1, 1, false),
            (10, 2, true),
            (40, 2, false),
        ] {
            assert_eq!(paths(nodes, edges).is_some(), is_known, "{nodes} {edges}");
        }
    }
}
