//! [`Caches`]: what fronts keep of their decisions, for as long as a snapshot is in force or the process runs.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;

/// One value of each type, made when it is first asked for. Nothing is locked.
#[derive(Default)]
pub struct Caches(OnceLock<Box<Entry>>);

struct Entry {
    value: Box<dyn Any + Send + Sync>,
    next: Caches,
}

impl Caches {
    /// Takes some nanoseconds: there are as many as fronts have caches.
    pub fn of<T: Any + Default + Send + Sync>(&self) -> &T {
        let mut at = self;
        loop {
            let entry = at.0.get_or_init(|| {
                Box::new(Entry {
                    value: Box::new(T::default()),
                    next: Self::default(),
                })
            });
            // Even a place that was empty a moment ago may hold another type: another thread was first.
            match entry.value.downcast_ref() {
                Some(value) => return value,
                // Values are chained, so a reference stays valid while others are added.
                None => at = &entry.next,
            }
        }
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Caches").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

    use super::Caches;

    #[test]
    fn there_is_one_value_of_each_type() {
        let caches = Caches::default();
        caches.of::<AtomicU8>().store(1, Ordering::Relaxed);
        caches.of::<AtomicU16>().store(2, Ordering::Relaxed);
        assert_eq!(caches.of::<AtomicU8>().load(Ordering::Relaxed), 1);
        assert_eq!(caches.of::<AtomicU16>().load(Ordering::Relaxed), 2);
    }
}
