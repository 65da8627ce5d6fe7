//! The guard of an object with a state: one conditional update decides who may act.

/// The step of an object from one state to another, such as a payment from `Pending` to `Paid`.
///
/// Pure: it says which states to compare in a conditional update, and what a failed one means.
///
/// ```
/// use landfall::idempotency::{Advanced, StateGuard};
///
/// #[derive(Debug, Clone, Copy, PartialEq, Eq)]
/// enum State { Pending, Processing, Paid, Cancelled }
///
/// let pay = StateGuard::new([State::Pending], State::Paid).via(State::Processing).falling_back_to(State::Pending);
/// assert_eq!(pay.first(), State::Processing);
/// assert_eq!(pay.judge(Some(State::Paid)), Advanced::Before);
/// assert_eq!(pay.judge(Some(State::Processing)), Advanced::InProgress);
/// assert_eq!(pay.judge(Some(State::Cancelled)), Advanced::Refused(State::Cancelled));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateGuard<S> {
    from: Vec<S>,
    via: Option<S>,
    to: S,
    back: Option<S>,
}

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advanced<S> {
    /// This call made the step.
    Now,
    /// It was made before: a repeat.
    Before,
    /// Another caller is making it.
    InProgress,
    /// The object is in a state from which it cannot be made.
    Refused(S),
    /// There is no such object.
    Missing,
}

impl<S: Copy + Eq> StateGuard<S> {
    /// Allows the step to `to` from the states in `from`.
    pub fn new(from: impl IntoIterator<Item = S>, to: S) -> Self {
        Self { from: from.into_iter().collect(), via: None, to, back: None }
    }

    /// Adds a state for the time of the work, for work that is not in the transaction of the state.
    #[must_use]
    pub fn via(mut self, state: S) -> Self {
        self.via = Some(state);
        self
    }

    /// Allows to fall back to `state` if the work fails. Without it the object stays in the state of the work.
    #[must_use]
    pub fn falling_back_to(mut self, state: S) -> Self {
        self.back = Some(state);
        self
    }

    /// Returns the states to compare in `UPDATE … SET state = first WHERE id = … AND state IN (sources)`.
    pub fn sources(&self) -> &[S] {
        &self.from
    }

    /// Returns the state that the first update writes: the one of the work, or else the target.
    pub fn first(&self) -> S {
        self.via.unwrap_or(self.to)
    }

    pub fn target(&self) -> S {
        self.to
    }

    /// Returns the state to fall back to after an error.
    pub fn fallback(&self) -> Option<S> {
        self.back
    }

    /// Says why the first update changed no row, from the state that was read after it. `None` for a missing object.
    ///
    /// A state from which the step is allowed means that it changed in between; try again.
    pub fn judge(&self, current: Option<S>) -> Advanced<S> {
        match current {
            None => Advanced::Missing,
            Some(current) if current == self.to => Advanced::Before,
            Some(current) if Some(current) == self.via => Advanced::InProgress,
            Some(current) => Advanced::Refused(current),
        }
    }

    /// Makes the step: `update` writes a state if the object has one of the given ones, and returns how many rows it
    /// changed; `read` returns the state. Both run on `connection`.
    ///
    /// In a future that must be `Send`, pass functions: the compiler refuses closures that capture. `C` may be your own
    /// type, with the connection and the id of the object.
    pub async fn advance<C: ?Sized, E>(
        &self,
        connection: &mut C,
        update: impl AsyncFn(&mut C, &[S], S) -> Result<u64, E>,
        read: impl AsyncFn(&mut C) -> Result<Option<S>, E>,
    ) -> Result<Advanced<S>, E> {
        // A third round needs another caller that moves the object back and forth meanwhile.
        let mut judged = Advanced::Missing;
        for _ in 0..3 {
            if update(connection, &self.from, self.first()).await? > 0 {
                return Ok(Advanced::Now);
            }
            let current = read(connection).await?;
            judged = self.judge(current);
            if !current.is_some_and(|current| self.from.contains(&current)) {
                return Ok(judged);
            }
        }
        Ok(judged)
    }

    /// Ends the work of a step with a state in between: writes the target, or the fallback after an error. Returns
    /// whether the object was still in the state of the work.
    pub async fn finish<C: ?Sized, E>(
        &self,
        connection: &mut C,
        is_done: bool,
        update: impl AsyncFnOnce(&mut C, &[S], S) -> Result<u64, E>,
    ) -> Result<bool, E> {
        let (Some(via), Some(state)) = (self.via, if is_done { Some(self.to) } else { self.back }) else {
            return Ok(false);
        };
        Ok(update(connection, &[via], state).await? > 0)
    }
}
