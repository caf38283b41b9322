//! Builds one page of a list whose rows RBAC authorizes one by one: of rows in memory by
//! [`visible_page`], of rows in the store by [`PageBuilder`].
//!
//! Invariant: a page queries the store at most ten times, and its cursor names only
//! the last item of the page.

use super::Error;

/// Most rows of one query to the store.
pub const ROWS: u32 = 1_000;

const MAX_QUERIES: u32 = 10;

/// The last row of a query's result, if more rows may follow.
pub fn last_of_full<T>(rows: &[T]) -> Option<&T> {
    // Fewer rows than were asked for are the end of the list.
    let is_full = u32::try_from(rows.len()).is_ok_and(|rows| rows >= ROWS);
    rows.last().filter(|_| is_full)
}

/// Rows in memory for which RBAC is asked at once.
const CHUNK: usize = 256;

/// The first rows that are visible, and whether there are more. Reads no further than it has to.
///
/// - `rows`: those in memory, in order.
/// - `visible`: for each of some rows, whether the caller may see it.
pub fn visible_page<T>(
    mut rows: impl Iterator<Item = T>,
    limit: usize,
    visible: impl Fn(&[T]) -> Vec<bool>,
) -> (Vec<T>, bool) {
    let mut page = Vec::new();
    loop {
        let chunk: Vec<T> = rows.by_ref().take(CHUNK).collect();
        if chunk.is_empty() {
            return (page, false);
        }
        let verdicts = visible(&chunk);
        page.extend(
            chunk
                .into_iter()
                .zip(verdicts)
                .filter_map(|(row, is_visible)| is_visible.then_some(row)),
        );
        // Only a row that the caller may see shows that another page follows.
        if page.len() > limit {
            page.truncate(limit);
            return (page, true);
        }
    }
}

/// Builds a page of rows in the store.
#[derive(Debug)]
pub struct PageBuilder<T, P> {
    /// The items the caller may see. One more than fits on the page means that another page
    /// follows.
    items: Vec<(P, T)>,
    max_items: usize,
    /// Position after which the next query begins.
    after: Option<P>,
    queries: u32,
    is_complete: bool,
}

impl<T, P: Clone> PageBuilder<T, P> {
    /// A page of at most `max_items` items that begins after a position.
    pub fn new(after: Option<P>, max_items: u32) -> Self {
        Self {
            items: Vec::new(),
            max_items: usize::try_from(max_items).unwrap_or(usize::MAX),
            after,
            queries: 0,
            is_complete: false,
        }
    }

    /// Whether the store has to be asked once more.
    pub fn needs_query(&self) -> bool {
        !self.is_complete && self.items.len() <= self.max_items && self.queries < MAX_QUERIES
    }

    /// Position after which the next query begins.
    pub fn after(&self) -> Option<P> {
        self.after.clone()
    }

    /// Adds the rows of a query that the caller may see.
    ///
    /// - `end`: last position of the result. `None` if nothing follows.
    pub fn add_rows(&mut self, visible: impl IntoIterator<Item = (P, T)>, end: Option<P>) {
        self.queries = self.queries.saturating_add(1);
        self.items.extend(visible);
        self.is_complete = end.is_none();
        self.after = end;
    }

    /// Returns the page and the position after which the next one begins. The last page has no
    /// position.
    ///
    /// # Errors
    /// [`Error::Query`]: the rows that one page may read held nothing to show.
    pub fn finish(mut self) -> Result<(Vec<T>, Option<P>), Error> {
        let is_last = self.is_complete && self.items.len() <= self.max_items;
        self.items.truncate(self.max_items);
        let last = self.items.last().map(|(position, _)| position.clone());
        // A cursor would have to name a row that the caller may not see.
        if last.is_none() && !is_last {
            return Err(Error::Query {
                why: format!(
                    "is about too many rows that you may not see: more than {}; name an `agent` or a `user`",
                    MAX_QUERIES.saturating_mul(ROWS)
                ),
            });
        }
        let items = self.items.into_iter().map(|(_, item)| item).collect();
        Ok((items, last.filter(|_| !is_last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows 1 to 11, of which the caller may see the even ones, three at a time.
    fn pages(max_items: u32) -> Vec<Vec<u32>> {
        let (mut pages, mut after) = (Vec::new(), None);
        loop {
            let mut page = PageBuilder::new(after, max_items);
            while page.needs_query() {
                let first = page.after().map_or(1, |after: u32| after + 1);
                let rows = (first..first + 3).filter(|row| *row <= 11 && row % 2 == 0);
                page.add_rows(rows.map(|row| (row, row)), (first + 2 < 11).then_some(first + 2));
            }
            let (items, next) = page.finish().unwrap();
            assert!(
                next.is_none() || next == items.last().copied(),
                "the cursor names an item of the page"
            );
            pages.push(items);
            match next {
                Some(next) => after = Some(next),
                None => return pages,
            }
        }
    }

    #[test]
    fn pages_contain_each_visible_row_once() {
        assert_eq!(pages(100), [vec![2, 4, 6, 8, 10]]);
        // Row 11 follows, but the caller may not see it, so there is no cursor.
        assert_eq!(pages(5), [vec![2, 4, 6, 8, 10]]);
        assert_eq!(pages(2), [vec![2, 4], vec![6, 8], vec![10]]);
        assert_eq!(pages(1), [[2], [4], [6], [8], [10]].map(Vec::from));
    }

    #[test]
    fn a_page_makes_a_bounded_number_of_queries() {
        // Only row 5 is visible, in a list without an end.
        let page = |after| {
            let mut page = PageBuilder::new(after, 2);
            let mut query_count = 0;
            while page.needs_query() {
                let row = page.after().map_or(1, |after| after + 1);
                page.add_rows((row == 5).then_some((row, row)), Some(row));
                query_count += 1;
            }
            assert_eq!(query_count, MAX_QUERIES);
            page.finish()
        };
        assert_eq!(page(None).unwrap(), (vec![5], Some(5)));
        let refused = page(Some(5)).unwrap_err().to_string();
        assert!(
            refused.contains("more than 10000; name an `agent` or a `user`"),
            "{refused}"
        );
    }
}
