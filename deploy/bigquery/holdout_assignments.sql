-- Who is held out of which experiment.
-- Run with the dataset as the default one: bq query --use_legacy_sql=false --dataset_id=PROJECT:DATASET < holdout_assignments.sql
-- Clustered by tenant and identity, so that an erasure reads that tenant's and that person's blocks and no others.
CREATE TABLE IF NOT EXISTS holdout_assignments (
  row_id STRING NOT NULL,
  tenant_id STRING NOT NULL,
  identity_id STRING NOT NULL,
  source STRING NOT NULL,
  source_ref STRING NOT NULL,
  consent_basis STRING NOT NULL,
  derived_from STRING OPTIONS (description = 'JSON list of {source, source_ref}'),
  ingested_at TIMESTAMP NOT NULL,
  experiment STRING NOT NULL,
  identity_kind STRING NOT NULL,
  assignment STRING NOT NULL
)
PARTITION BY TIMESTAMP_TRUNC(ingested_at, MONTH)
CLUSTER BY tenant_id, identity_id, source, source_ref
OPTIONS (description = 'Holdout assignments of deterministic identities');
