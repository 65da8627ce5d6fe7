use std::pin::Pin;
use std::task::{Context, Poll};

/// Makes a future cancellation-safe: if it is dropped before its end, `finish` receives the rest and completes it
/// elsewhere.
///
/// For driver calls that are not cancellation-safe. A `BEGIN` whose caller is dropped before the response leaves a
/// transaction open in a connection that returns to the pool. Nothing is spawned unless the future is dropped.
#[derive(Debug)]
pub struct DetachOnDrop<F: Future, S: FnOnce(Pin<Box<F>>)> {
    future: Option<Pin<Box<F>>>,
    finish: Option<S>,
}

impl<F: Future, S: FnOnce(Pin<Box<F>>)> DetachOnDrop<F, S> {
    pub fn new(future: F, finish: S) -> Self {
        Self { future: Some(Box::pin(future)), finish: Some(finish) }
    }
}

impl<F: Future, S: FnOnce(Pin<Box<F>>) + Unpin> Future for DetachOnDrop<F, S> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        let answer = future.as_mut().poll(context);
        if answer.is_ready() {
            self.future = None;
        }
        answer
    }
}

impl<F: Future, S: FnOnce(Pin<Box<F>>)> Drop for DetachOnDrop<F, S> {
    fn drop(&mut self) {
        if let (Some(rest), Some(finish)) = (self.future.take(), self.finish.take()) {
            finish(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn completed_future_is_not_detached() {
        let mut handed = 0;
        let mut future = DetachOnDrop::new(std::future::ready(7), |_| handed += 1);
        assert_eq!(poll(&mut future), Poll::Ready(7));
        drop(future);
        assert_eq!(handed, 0);
    }

    #[test]
    fn dropped_future_continues() {
        let mut steps = 0;
        let mut rest = None;
        {
            let future = std::future::poll_fn(|_| {
                steps += 1;
                if steps == 3 { Poll::Ready(steps) } else { Poll::Pending }
            });
            let mut future = DetachOnDrop::new(future, |given| rest = Some(given));
            assert_eq!(poll(&mut future), Poll::Pending);
        }
        let mut rest = rest.unwrap();
        assert_eq!(poll(&mut rest), Poll::Pending);
        assert_eq!(poll(&mut rest), Poll::Ready(3));
    }
}
