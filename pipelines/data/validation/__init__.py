"""Validation of a batch of interactions: row by row, by figures of the batch, and against the last accepted batch.

Bad rows are quarantined with their reasons, never dropped: rows read are rows kept plus rows quarantined. Everything runs in streaming
passes; profiles of a batch are bounded in size.
"""
