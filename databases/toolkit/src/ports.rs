//! The ports that are equal on every server.

/// Implements `Redrives`, `RedriveQueue`, `AuditTrail`, `ArchivableLetters`,
/// `LetterGroups` and `KeyRules` for an adapter with [`LetterTables`](crate::LetterTables).
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

            async fn control_redrive(
                &self,
                id: ::landfall_core::RedriveId,
                control: ::landfall_core::RedriveControl,
                actor: &str,
            ) -> ::landfall_core::Result<::landfall_core::RedriveJob> {
                $crate::redrive::control(self, id, control, actor).await
            }

            async fn redrive_skips(
                &self,
                id: ::landfall_core::RedriveId,
            ) -> ::landfall_core::Result<Vec<(String, u64)>> {
                $crate::redrive::skips(self, id).await
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
    };
}
