"""A stand-in for Feishu's Bitable API: `bitable` answers requests, `tables` holds records, `limits` refuses excess."""
