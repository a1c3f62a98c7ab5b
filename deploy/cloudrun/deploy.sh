#!/usr/bin/env bash
# Applies the whole deployment in order: accounts, tables, cells, coordinator, grants, log exclusion. It is idempotent.
#
#   deploy.sh --dry-run          prints every command and every filled-in manifest, and runs nothing
#   deploy.sh                    runs them
#
# Reads: PROJECT PROJECT_NUMBER REGION LOCATION DATASET REGISTRY VERSION NETWORK SUBNET SALT_VERSION SUPPRESSION_KEY_VERSION LEDGER_KEY_VERSION DESCRIPTOR_KMS_KEY BACKUP_HORIZON_DAYS ADMIN_PRINCIPALS DSAR_SA IMPORTER_SA
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"

dry_run=false
case "${1:-}" in
  --dry-run) dry_run=true ;;
  "") ;;
  *) echo "usage: deploy.sh [--dry-run]" >&2; exit 2 ;;
esac

missing=()
for name in PROJECT PROJECT_NUMBER REGION LOCATION DATASET REGISTRY VERSION NETWORK SUBNET SALT_VERSION SUPPRESSION_KEY_VERSION LEDGER_KEY_VERSION DESCRIPTOR_KMS_KEY BACKUP_HORIZON_DAYS ADMIN_PRINCIPALS DSAR_SA IMPORTER_SA; do
  [ -n "${!name:-}" ] || missing+=("$name")
  export "${name?}"
done
if [ "${#missing[@]}" -gt 0 ]; then
  echo "deploy.sh: set ${missing[*]}" >&2
  exit 2
fi

run() {
  if $dry_run; then printf '+'; printf ' %q' "$@"; printf '\n'; else "$@"; fi
}

# fill replaces ${NAME} by the variable of that name, and nothing else.
fill() {
  local text
  text="$(cat "$1")"
  for name in PROJECT_NUMBER PROJECT REGION LOCATION DATASET REGISTRY VERSION NETWORK SUBNET SALT_VERSION SUPPRESSION_KEY_VERSION LEDGER_KEY_VERSION DESCRIPTOR_KMS_KEY BACKUP_HORIZON_DAYS ADMIN_PRINCIPALS DSAR_SA IMPORTER_SA; do
    text="${text//"\${$name}"/${!name}}"
  done
  printf '%s\n' "$text"
}

account() { echo "recount-$1@$PROJECT.iam.gserviceaccount.com"; }
services=(ingest graph causal coordinator) # the coordinator last: its peers exist when it starts

echo "== accounts"
for service in "${services[@]}" scheduler; do
  if $dry_run || ! gcloud iam service-accounts describe "$(account "$service")" --project "$PROJECT" >/dev/null 2>&1; then
    run gcloud iam service-accounts create "recount-$service" --project "$PROJECT" --display-name "Recount $service"
  fi
done

echo "== roles of our own"
for role in recountStore recountAudit; do
  verb=create
  if ! $dry_run && gcloud iam roles describe "$role" --project "$PROJECT" >/dev/null 2>&1; then verb=update; fi
  run gcloud iam roles "$verb" "$role" --project "$PROJECT" --quiet --file "$here/roles/$role.yaml"
done

echo "== tables"
for ddl in "$here"/../bigquery/*.sql; do
  run bq query --project_id "$PROJECT" --location "$LOCATION" --dataset_id "$DATASET" --use_legacy_sql=false "$(cat "$ddl")"
done

echo "== grants on data: each account its own tables, and the audit table to append to"
declare -A tables=([ingest]="intent_events" [coordinator]="intent_scores" [causal]="holdout_assignments outcomes" [graph]="")
for service in "${services[@]}"; do
  member="serviceAccount:$(account "$service")"
  run gcloud projects add-iam-policy-binding "$PROJECT" --member "$member" --role roles/bigquery.jobUser --condition None
  run bq add-iam-policy-binding --member "$member" --role roles/bigquery.metadataViewer "$PROJECT:$DATASET"
  for table in ${tables[$service]}; do
    run bq add-iam-policy-binding --member "$member" --role "projects/$PROJECT/roles/recountStore" "$PROJECT:$DATASET.$table"
  done
  run bq add-iam-policy-binding --member "$member" --role "projects/$PROJECT/roles/recountAudit" "$PROJECT:$DATASET.intent_erasure_audit"
  for secret in intent-subject-salt recount-suppression-key; do
    run gcloud secrets add-iam-policy-binding "$secret" --project "$PROJECT" --member "$member" --role roles/secretmanager.secretAccessor
  done
  run gcloud projects add-iam-policy-binding "$PROJECT" --member "$member" --role roles/datastore.user --condition None # its suppression ledger
done

echo "== keys of erasure requests: the coordinator signs the ledger, and wraps the descriptors' keys"
run gcloud secrets add-iam-policy-binding recount-ledger-key --project "$PROJECT" --member "serviceAccount:$(account coordinator)" --role roles/secretmanager.secretAccessor
run gcloud kms keys add-iam-policy-binding "$DESCRIPTOR_KMS_KEY" --member "serviceAccount:$(account coordinator)" --role roles/cloudkms.cryptoKeyEncrypterDecrypter

echo "== log exclusion: the platform's own request log holds paths, and a path may hold an identity"
exclusion='name=recount-paths,filter=resource.type="cloud_run_revision" AND resource.labels.service_name=~"^recount-" AND log_id("run.googleapis.com/requests")'
if $dry_run || ! gcloud logging sinks describe _Default --project "$PROJECT" --format 'value(exclusions.name)' | grep -q recount-paths; then
  run gcloud logging sinks update _Default --project "$PROJECT" --add-exclusion "$exclusion"
fi

echo "== services"
for service in "${services[@]}"; do
  if $dry_run; then
    echo "+ gcloud run services replace - --project $PROJECT --region $REGION <<MANIFEST"
    fill "$here/$service.yaml"
    echo "MANIFEST"
  else
    fill "$here/$service.yaml" | gcloud run services replace - --project "$PROJECT" --region "$REGION"
  fi
done

echo "== who may call: the coordinator its peers; the DSAR tool all four (access and the manual fallback go to cells directly); importers what takes records in"
for service in "${services[@]}"; do
  members=("serviceAccount:$DSAR_SA" "serviceAccount:$IMPORTER_SA")
  [ "$service" = coordinator ] || members+=("serviceAccount:$(account coordinator)")
  for member in "${members[@]}"; do
    run gcloud run services add-iam-policy-binding "recount-$service" --project "$PROJECT" --region "$REGION" --member "$member" --role roles/run.invoker
  done
done
echo "== the scheduler drives what is pending: it may do nothing else"
coordinator_url="https://recount-coordinator-$PROJECT_NUMBER.$REGION.run.app"
run gcloud run services add-iam-policy-binding recount-coordinator --project "$PROJECT" --region "$REGION" --member "serviceAccount:$(account scheduler)" --role roles/run.invoker
verb=create
if ! $dry_run && gcloud scheduler jobs describe recount-resume --project "$PROJECT" --location "$REGION" >/dev/null 2>&1; then verb=update; fi
run gcloud scheduler jobs "$verb" http recount-resume --project "$PROJECT" --location "$REGION" --schedule '* * * * *' --http-method POST \
  --uri "$coordinator_url/admin/erasure:resume" --oidc-service-account-email "$(account scheduler)" --oidc-token-audience "$coordinator_url" --attempt-deadline 120s

echo "== done: recount health shows whether every peer is configured"
