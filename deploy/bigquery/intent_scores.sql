-- What was computed about people, as the scoring cell took it in.
-- Run with the dataset as the default one: bq query --use_legacy_sql=false --dataset_id=PROJECT:DATASET < intent_scores.sql
-- Clustered by tenant and identity, so that an erasure reads that tenant's and that person's blocks and no others.
CREATE TABLE IF NOT EXISTS intent_scores (
  row_id STRING NOT NULL,
  tenant_id STRING NOT NULL,
  identity_id STRING NOT NULL,
  source STRING NOT NULL,
  source_ref STRING NOT NULL,
  consent_basis STRING NOT NULL,
  derived_from STRING OPTIONS (description = 'JSON list of {source, source_ref}'),
  ingested_at TIMESTAMP NOT NULL,
  model_version STRING NOT NULL,
  score FLOAT64 NOT NULL,
  features STRING OPTIONS (description = 'JSON object')
)
PARTITION BY TIMESTAMP_TRUNC(ingested_at, MONTH)
CLUSTER BY tenant_id, identity_id, source, source_ref
OPTIONS (description = 'Intent scores, one row per record');
