//! What goes on beside a claim while its holder works: renewals, and the watch for its loss.

use super::Inner;
use crate::clock::{Clock, Moment, expired};
use crate::lease::{Loss, LossCause, Place, PlaceName, Refusal};
use crate::sync::{Raised, Signal};
use crate::timer::{Alarm, LastAlarm, Timer};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

/// A claim that is being renewed. Dropping it ends that.
#[derive(Debug)]
pub(super) struct Renewal {
    timer: Timer,
    place: PlaceName,
    lease: Duration,
    until: Moment,
    alarm: LastAlarm,
}

impl Renewal {
    pub(super) fn start(
        timer: &Timer,
        place: &PlaceName,
        lease: Duration,
        until: Moment,
    ) -> Result<Arc<Self>, Refusal> {
        let (timer, place) = (timer.clone(), place.clone());
        let renewal = Arc::new(Self { timer, place, lease, until, alarm: LastAlarm::default() });
        renewal.renew()?;
        Ok(renewal)
    }

    /// Renews now, and sets the alarm for the next time.
    fn renew(self: &Arc<Self>) -> Result<(), Refusal> {
        let deadline = self.place.renew(self.lease, Some(self.until))?;
        if deadline >= self.until {
            return Ok(());
        }
        let next = deadline.before(self.lease / 2);
        let this = Arc::downgrade(self);
        let alarm = self.timer.set(next, move || {
            // Gone once the claim has settled or was dropped; refused once it was lost. Both end it.
            if let Some(renewal) = Weak::upgrade(&this) {
                let _ = renewal.renew();
            }
        });
        // Without a timer the lease runs out at its time, which is told like any other loss.
        self.alarm.keep(alarm.ok());
        Ok(())
    }
}

/// Tells when a claim stops being its holder's. See [`Claim::lost`](super::Claim::lost).
#[derive(Debug, Clone)]
pub struct LossSignal(Arc<Watched>);

/// What is looked at; nothing knows of a look that nobody awaits.
#[derive(Debug)]
struct Watched {
    loss: Arc<Loss>,
    /// `None` if it was over before.
    place: Option<(Timer, Arc<dyn Clock>, PlaceName)>,
}

impl LossSignal {
    pub(super) fn of(store: &Inner, place: Option<&Place>) -> Self {
        let Some(place) = place else {
            let loss = Arc::new(Loss::default());
            loss.raise(LossCause::Ended);
            return Self(Arc::new(Watched { loss, place: None }));
        };
        let watched = (store.timer.clone(), Arc::clone(&store.clock), place.name().clone());
        Self(Arc::new(Watched { loss: place.loss(), place: Some(watched) }))
    }

    /// Why the claim is no longer its holder's; `None` while it is.
    #[must_use]
    pub fn cause(&self) -> Option<LossCause> {
        self.0.deadline();
        self.0.loss.cause()
    }

    /// Whether the claim is no longer its holder's.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.cause().is_some()
    }

    /// Ready with the cause once the claim is no longer its holder's. It is watched from the first poll on, until
    /// this is dropped.
    pub fn raised(&self) -> LossRaised {
        let signal = Arc::new(Signal::new());
        let raised = signal.raised();
        LossRaised { watched: Arc::clone(&self.0), signal, raised, alarm: None }
    }
}

impl Watched {
    /// When the lease will be over; raises the signal if it is.
    fn deadline(&self) -> Option<Moment> {
        let (_, clock, place) = self.place.as_ref()?;
        // The time first: read afterwards, it could be past a deadline that was renewed meanwhile.
        let now = clock.now();
        let deadline = place.deadline()?;
        if expired(now, deadline) {
            self.loss.raise(LossCause::LeaseOver);
            return None;
        }
        Some(deadline)
    }
}

/// Awaits the loss of a claim.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct LossRaised {
    watched: Arc<Watched>,
    signal: Arc<Signal>,
    raised: Raised,
    /// For when the lease will be over, as it was seen last.
    alarm: Option<(Moment, Alarm)>,
}

impl LossRaised {
    /// Sets the alarm for when the lease will be over. A lease that was renewed meanwhile is not over then: this
    /// sets the next alarm.
    fn look(&mut self) {
        let (Some((timer, ..)), Some(deadline)) = (&self.watched.place, self.watched.deadline()) else {
            return;
        };
        if self.alarm.as_ref().is_some_and(|(at, _)| *at == deadline) {
            return;
        }
        let signal = Arc::clone(&self.signal);
        // Without a timer the loss is seen when it is asked for.
        self.alarm = timer.set(deadline, move || signal.notify()).ok().map(|alarm| (deadline, alarm));
    }
}

impl Future for LossRaised {
    type Output = LossCause;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<LossCause> {
        loop {
            // Asked to be told before the look, so that no change falls between.
            if let Some(cause) = self.watched.loss.cause_or_tell(&self.signal) {
                return Poll::Ready(cause);
            }
            self.look();
            if Pin::new(&mut self.raised).poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for LossRaised {
    fn drop(&mut self) {
        self.watched.loss.forget(&self.signal);
    }
}
