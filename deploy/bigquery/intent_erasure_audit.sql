-- One row per receipt of every erasure, access and suppression. It names people by reference only.
-- Run with the dataset as the default one: bq query --use_legacy_sql=false --dataset_id=PROJECT:DATASET < intent_erasure_audit.sql
CREATE TABLE IF NOT EXISTS intent_erasure_audit (
  request_id STRING NOT NULL,
  tenant_id STRING NOT NULL,
  subject_ref STRING NOT NULL,
  cell STRING NOT NULL,
  store STRING NOT NULL,
  operation STRING NOT NULL,
  status STRING NOT NULL,
  before INT64,
  deleted INT64,
  remaining INT64,
  actor STRING,
  detail STRING,
  occurred_at TIMESTAMP NOT NULL
)
PARTITION BY TIMESTAMP_TRUNC(occurred_at, MONTH)
CLUSTER BY tenant_id, subject_ref
OPTIONS (description = 'Audit of erasures, pseudonymous');
