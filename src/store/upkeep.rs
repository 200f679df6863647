//! What goes on beside a claim while its holder works: renewals, and the watch for its loss.

use super::Inner;
use crate::clock::Moment;
use crate::clock::expired;
use crate::lease::{Loss, LossCause, Place, PlaceName, Refusal};
use crate::sync::{Mutex, Raised, Signal};
use crate::timer::{Alarm, Timer};
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
    alarm: Mutex<Option<Alarm>>,
}

impl Renewal {
    pub(super) fn start(
        timer: &Timer,
        place: &PlaceName,
        lease: Duration,
        until: Moment,
    ) -> Result<Arc<Self>, Refusal> {
        let (timer, place) = (timer.clone(), place.clone());
        let renewal = Arc::new(Self { timer, place, lease, until, alarm: Mutex::default() });
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
        let former = std::mem::replace(&mut *self.alarm.lock(), alarm.ok());
        drop(former);
        Ok(())
    }
}

/// Tells when a claim stops being its holder's. See [`Claim::lost`](super::Claim::lost).
#[derive(Debug, Clone)]
pub struct LossSignal(Arc<Watch>);

#[derive(Debug)]
struct Watch {
    loss: Arc<Loss>,
    /// What to watch; `None` if it was over before.
    place: Option<(Timer, Arc<dyn crate::clock::Clock>, PlaceName)>,
    alarm: Mutex<Option<Alarm>>,
}

impl LossSignal {
    pub(super) fn of(store: &Inner, place: Option<&Place>) -> Self {
        let Some(place) = place else {
            let loss = Arc::new(Loss::default());
            loss.raise(LossCause::Ended);
            return Self(Arc::new(Watch { loss, place: None, alarm: Mutex::default() }));
        };
        let watched = Some((store.timer.clone(), Arc::clone(&store.clock), place.name().clone()));
        let loss = place.loss();
        let watch = Arc::new(Watch { loss, place: watched, alarm: Mutex::default() });
        watch.look();
        let this = Arc::downgrade(&watch);
        watch.loss.watch(move || {
            let watch = Weak::upgrade(&this);
            watch.as_ref().inspect(|watch| watch.look()).is_some()
        });
        Self(watch)
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

    /// Ready with the cause once the claim is no longer its holder's.
    pub fn raised(&self) -> LossRaised {
        let signal = Arc::new(Signal::new());
        let raised = signal.raised();
        LossRaised { watch: Arc::clone(&self.0), signal, raised }
    }
}

impl Watch {
    /// When the lease will be over; raises the signal if it is.
    fn deadline(&self) -> Option<Moment> {
        let (_, clock, place) = self.place.as_ref()?;
        let deadline = place.deadline()?;
        if expired(clock.now(), deadline) {
            self.loss.raise(LossCause::LeaseOver);
            return None;
        }
        Some(deadline)
    }

    /// Sets the alarm for when the lease will be over.
    fn look(self: &Arc<Self>) {
        let (Some((timer, ..)), Some(deadline)) = (&self.place, self.deadline()) else { return };
        let this = Arc::downgrade(self);
        let alarm = timer.set(deadline, move || {
            // A lease that was renewed meanwhile is not over: this sets the next alarm then.
            if let Some(watch) = Weak::upgrade(&this) {
                watch.look();
            }
        });
        // Without a timer the loss is seen when it is asked for.
        let former = std::mem::replace(&mut *self.alarm.lock(), alarm.ok());
        drop(former);
    }
}

/// Awaits the loss of a claim.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct LossRaised {
    watch: Arc<Watch>,
    signal: Arc<Signal>,
    raised: Raised,
}

impl Future for LossRaised {
    type Output = LossCause;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<LossCause> {
        loop {
            if let Some(cause) = self.watch.loss.cause_or_tell(&self.signal) {
                return Poll::Ready(cause);
            }
            if Pin::new(&mut self.raised).poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for LossRaised {
    fn drop(&mut self) {
        self.watch.loss.forget(&self.signal);
    }
}
