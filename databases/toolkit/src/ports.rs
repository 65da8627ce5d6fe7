//! The ports that are equal on every server.

/// Implements `Redrives`, `RedriveQueue`, `Rehearsals`, `AuditTrail`, `KeyRules`, `LetterGroups`, `ArchivableLetters`,
/// `Alerts` and `AlertQueue` for an adapter with [`LetterTables`](crate::LetterTables).
#[macro_export]
macro_rules! letter_ports {
    ($adapter:ty) => {
        #[::async_trait::async_trait]
        impl ::landfall_core::Redrives for $adapter {
            async fn start_redrive(
                &self,
                request: &::landfall_core::RedriveRequest,
                actor: &str,
            ) -> ::landfall_core::Result<::landfall_core::RedriveStarted> {
                $crate::redrive::start(self, request, actor).await
            }

            async fn rehearse_redrive(
                &self,
                selection: &::landfall_core::RedriveSelection,
                guards: &::landfall_core::RedriveGuards,
                limit: usize,
            ) -> ::landfall_core::Result<Vec<::landfall_core::Prediction>> {
                $crate::redrive::rehearse(self, selection, guards, limit).await
            }

            async fn redrive_jobs(
                &self,
                before: Option<::landfall_core::RedriveId>,
                limit: usize,
            ) -> ::landfall_core::Result<Vec<::landfall_core::RedriveJob>> {
                $crate::redrive::jobs(self, before, limit).await
            }

            async fn redrive_job(
                &self,
                id: ::landfall_core::RedriveId,
            ) -> ::landfall_core::Result<Option<::landfall_core::RedriveJob>> {
                $crate::redrive::job(self, id).await
            }

            async fn control_redrive_because(
                &self,
                id: ::landfall_core::RedriveId,
                control: ::landfall_core::RedriveControl,
                reason: &str,
                actor: &str,
            ) -> ::landfall_core::Result<::landfall_core::RedriveJob> {
                $crate::redrive::control(self, id, control, reason, actor).await
            }

            async fn redrive_at_once(
                &self,
                request: &::landfall_core::ImmediateRedrive,
                actor: &str,
            ) -> ::landfall_core::Result<::landfall_core::ImmediatelyRedriven> {
                $crate::redrive::at_once(self, request, actor).await
            }

            async fn redrive_skips(
                &self,
                id: ::landfall_core::RedriveId,
            ) -> ::landfall_core::Result<Vec<(String, u64)>> {
                $crate::redrive::skips(self, id).await
            }

            async fn job_letters(
                &self,
                id: ::landfall_core::RedriveId,
                state: Option<::landfall_core::JobLetterState>,
                after: Option<::landfall_core::DeadLetterId>,
                limit: usize,
            ) -> ::landfall_core::Result<Vec<::landfall_core::JobLetter>> {
                $crate::redrive::job_letters(self, id, state, after, limit).await
            }
        }

        #[::async_trait::async_trait]
        impl ::landfall_core::RedriveQueue for $adapter {
            async fn active_redrives(&self) -> ::landfall_core::Result<Vec<::landfall_core::ActiveRedrive>> {
                $crate::redrive::active(self).await
            }

            async fn settle_redrive(
                &self,
                id: ::landfall_core::RedriveId,
                epoch: ::landfall_core::adapter::Epoch,
                rule: &::landfall_core::StopRule,
            ) -> ::landfall_core::Result<::landfall_core::ActiveRedrive> {
                $crate::redrive::settle(self, id, epoch, rule).await
            }

            async fn dispatch_redrive(
                &self,
                id: ::landfall_core::RedriveId,
                epoch: ::landfall_core::adapter::Epoch,
                limit: usize,
                guards: &::landfall_core::RedriveGuards,
            ) -> ::landfall_core::Result<::landfall_core::DispatchResult> {
                $crate::redrive::dispatch(self, id, epoch, limit, guards).await
            }

            async fn remove_redrives(
                &self,
                before: ::landfall_core::Timestamp,
                at_most: usize,
            ) -> ::landfall_core::Result<u64> {
                $crate::redrive::remove(self, before, at_most).await
            }
        }

        #[::async_trait::async_trait]
        impl ::landfall_core::Rehearsals for $adapter {
            async fn request_rehearsal(
                &self,
                letters: &[::landfall_core::DeadLetterId],
                actor: &str,
            ) -> ::landfall_core::Result<::landfall_core::RehearsalId> {
                $crate::rehearsal::request(self, letters, actor).await
            }

            async fn rehearsal(
                &self,
                id: ::landfall_core::RehearsalId,
            ) -> ::landfall_core::Result<Vec<::landfall_core::RehearsedLetter>> {
                $crate::rehearsal::results(self, id).await
            }

            async fn claim_rehearsal(
                &self,
                group: &::landfall_core::GroupName,
                lease: ::std::time::Duration,
            ) -> ::landfall_core::Result<Option<::landfall_core::adapter::RehearsalTask>> {
                $crate::rehearsal::claim(self, group, lease).await
            }

            async fn record_rehearsal(
                &self,
                task: &::landfall_core::adapter::RehearsalTask,
                result: &::landfall_core::RehearsalResult,
            ) -> ::landfall_core::Result<bool> {
                $crate::rehearsal::record(self, task, result).await
            }
        }

        #[::async_trait::async_trait]
        impl ::landfall_core::AuditTrail for $adapter {
            async fn audit_entries(
                &self,
                filter: &::landfall_core::AuditFilter,
                limit: usize,
            ) -> ::landfall_core::Result<Vec<::landfall_core::AuditEntry>> {
                $crate::audit_entries(self, filter, limit).await
            }
        }

        #[::async_trait::async_trait]
        impl ::landfall_core::KeyRules for $adapter {
            async fn set_key_rule(&self, rule: &::landfall_core::KeyRule) -> ::landfall_core::Result<()> {
                $crate::set_key_rule(self, rule).await
            }

            async fn remove_key_rule(
                &self,
                topic: &::landfall_core::TopicName,
                key: &::landfall_core::Key,
                reason: &str,
                actor: &str,
            ) -> ::landfall_core::Result<bool> {
                $crate::remove_key_rule(self, topic, key, reason, actor).await
            }

            async fn key_rules(&self, limit: usize) -> ::landfall_core::Result<Vec<::landfall_core::KeyRule>> {
                $crate::key_rules(self, limit).await
            }
        }

        #[::async_trait::async_trait]
        impl ::landfall_core::LetterGroups for $adapter {
            async fn change_group(
                &self,
                fingerprint: &str,
                change: ::landfall_core::GroupChange,
                note: &str,
                actor: &str,
            ) -> ::landfall_core::Result<::landfall_core::GroupStatus> {
                $crate::change_group(self, fingerprint, change, note, actor).await
            }
        }

        #[::async_trait::async_trait]
        impl ::landfall_core::ArchivableLetters for $adapter {
            async fn old_letters(
                &self,
                age: ::std::time::Duration,
                at_most: u64,
            ) -> ::landfall_core::Result<Vec<::landfall_core::ArchivedLetter>> {
                $crate::archive::old(self, age, at_most).await
            }

            async fn remove_archived_letters(
                &self,
                ids: &[::landfall_core::DeadLetterId],
                place: &str,
                actor: &str,
            ) -> ::landfall_core::Result<u64> {
                $crate::archive::remove(self, ids, place, actor).await
            }

            async fn restore_letters(
                &self,
                letters: &[::landfall_core::ArchivedLetter],
                place: &str,
                actor: &str,
            ) -> ::landfall_core::Result<::landfall_core::RestoredLetters> {
                $crate::archive::restore(self, letters, place, actor).await
            }
        }

        $crate::alert_ports!($adapter);
    };
}

/// Implements `Alerts` and `AlertQueue` for an adapter with [`LetterTables`](crate::LetterTables).
#[macro_export]
macro_rules! alert_ports {
    ($adapter:ty) => {
        #[::async_trait::async_trait]
        impl ::landfall_core::Alerts for $adapter {
            async fn alerts(
                &self,
                filter: &::landfall_core::AlertFilter,
                limit: usize,
            ) -> ::landfall_core::Result<Vec<::landfall_core::Alert>> {
                $crate::alert::alerts(self, filter, limit).await
            }

            async fn alert_notices(
                &self,
                filter: &::landfall_core::NoticeFilter,
                limit: usize,
            ) -> ::landfall_core::Result<Vec<::landfall_core::AlertNotice>> {
                $crate::alert::notices(self, filter, limit).await
            }

            async fn mute_alert(
                &self,
                target: &::landfall_core::MuteTarget,
                until: ::landfall_core::Timestamp,
                reason: &str,
                actor: &str,
            ) -> ::landfall_core::Result<()> {
                $crate::alert::mute(self, target, until, reason, actor).await
            }
        }

        #[::async_trait::async_trait]
        impl ::landfall_core::AlertQueue for $adapter {
            async fn observe_letters(
                &self,
                query: &::landfall_core::LetterQuery,
            ) -> ::landfall_core::Result<::landfall_core::LetterObservations> {
                $crate::alert::letters(self, query).await
            }

            async fn open_alerts(
                &self,
                also: &[::landfall_core::AlertId],
            ) -> ::landfall_core::Result<Vec<::landfall_core::Alert>> {
                $crate::alert::open(self, also).await
            }

            async fn record_alerts(
                &self,
                changes: &[::landfall_core::AlertChange],
                now: ::landfall_core::Timestamp,
            ) -> ::landfall_core::Result<()> {
                $crate::alert::record(self, changes, now).await
            }

            async fn claim_notices(
                &self,
                claim: &::landfall_core::NoticeClaim,
            ) -> ::landfall_core::Result<Option<::landfall_core::NoticeBatch>> {
                $crate::alert::claim(self, claim).await
            }

            async fn settle_notices(
                &self,
                batch: &::landfall_core::NoticeBatch,
                outcome: &::landfall_core::NoticeOutcome,
                now: ::landfall_core::Timestamp,
            ) -> ::landfall_core::Result<bool> {
                $crate::alert::settle(self, batch, outcome, now).await
            }

            async fn remove_alerts(
                &self,
                before: ::landfall_core::Timestamp,
                at_most: usize,
            ) -> ::landfall_core::Result<u64> {
                $crate::alert::remove(self, before, at_most).await
            }
        }
    };
}
